#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/at_least.h"
#include "cli/main_settings.h"
#include "cli/output.h"
#include "cli/recipe.h"
#include "cli/verbs.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "data/batch/show.h"
#include "data/check.h"
#include "data/dataset.h"
#include "data/store/source.h"
#include "infer/chat_session.h"
#include "train/run/run_tokenizer.h"
#include "train/settings/loading.h"

namespace tightloop::cli {

namespace {

struct DataArguments {
  std::string file;
  int64_t rows = 4;
  bool json = false, tokens = false;
};

nlohmann::json part_json(const PartCheck& part) {
  return {{"documents", part.documents},   {"tokens", part.tokens},
          {"supervised", part.supervised}, {"rows", part.rows},
          {"padding", part.padding_share}, {"long_documents", part.long_documents},
          {"cut_tokens", part.cut_tokens}};
}

/// What becomes of documents that are longer than a row.
std::string cut_text(const PartCheck& part, RowKind rows) {
  if (part.cut_tokens > 0) return fmt::format(" ({} cut off)", counted(part.cut_tokens, "token"));
  if (part.long_documents == 0 || rows != RowKind::kPack) return "";
  // Where not all is learned, what is learned may then stand without what it answers.
  return part.supervised < part.tokens ? " (cut into several rows: answers stand without their questions)"
                                       : " (cut into several rows)";
}

std::string part_text(const char* name, const PartCheck& part, const char* unit, RowKind rows) {
  return fmt::format("{}: {}, {} ({} to be learned), {}, {:.2f} % padding, {} longer than a row{}\n", name,
                     counted(part.documents, unit), counted(part.tokens, "token"), part.supervised,
                     counted(part.rows, "row"), 100 * part.padding_share, part.long_documents,
                     cut_text(part, rows));
}

/// `bad`: with what was skipped; a refusal lists that itself.
void print_text(const DataCheck& result, const char* unit, RowKind rows, bool bad) {
  std::fputs((counted(result.records, "record") + "\n" + part_text("train", result.train, unit, rows) +
              part_text("val", result.val, unit, rows))
                 .c_str(),
             stdout);
  if (bad && result.bad.total() > 0) std::fputs((printable(result.bad.report()) + "\n").c_str(), stdout);
}

/// Where a recipe is to fine-tune a model, that model's tokens are the ones that count.
void warn_of_no_model(const Recipe& recipe) {
  if (recipe.train.lr < 0 && recipe.train.init_from.empty() && recipe.tokenizer.path.empty())
    log::warn(
        "This recipe fine-tunes a model, and none is named: the tokens are those of a small vocabulary made "
        "of "
        "these files. For the model's own: --train.init_from MODEL");
}

void check(const DataArguments& options, const Settings& settings) {
  Recipe recipe = read_recipe(options.file, settings);
  require_files(recipe.data);
  warn_of_no_model(recipe);
  const OnBadRecord on_bad_record = recipe.data.on_bad_record;
  if (on_bad_record == OnBadRecord::kAuto)
    recipe.data.on_bad_record = OnBadRecord::kSkip;  // what is wrong is counted first
  const PairTokenizers tokenizers = make_tokenizers(recipe);
  const auto checked = [&] {
    return check_data(
        {recipe.data, recipe.tasks, recipe.chat, *tokenizers.source, tokenizers.own_target.get()},
        loads_pairs(recipe));
  };
  const auto result = checked();
  recipe.data.on_bad_record = on_bad_record;
  std::exception_ptr refusal;
  try {
    const bool two_files = !recipe.data.train_target.empty() || !recipe.data.val_target.empty();
    if (two_files && result.bad.count(BadKind::kUnpaired) > 0) checked();  // refuses files of unequal length
    refuse_too_many_bad(recipe.data, result.bad,
                        result.records - std::min(result.records, result.bad.total()));
  } catch (const Error&) {
    refusal = std::current_exception();
  }
  if (options.json) {
    nlohmann::json bad = nlohmann::json::object();
    for (size_t kind = 1; kind < static_cast<size_t>(BadKind::kCount); ++kind) {
      const auto count = result.bad.count(static_cast<BadKind>(kind));
      if (count > 0) bad[std::string(bad_kind_name(static_cast<BadKind>(kind)))] = count;
    }
    const nlohmann::json json{{"records", result.records},
                              {"tokens", result.train.tokens + result.val.tokens},
                              {"padding", result.train.padding_share},
                              {"bad_records", result.bad.total()},
                              {"bad", bad},
                              {"train", part_json(result.train)},
                              {"val", part_json(result.val)}};
    std::fputs((json.dump(2) + "\n").c_str(), stdout);
  } else {
    print_text(result, loads_pairs(recipe) ? "pair" : "document",
               loads_pairs(recipe) ? RowKind::kPad : recipe.data.rows, !refusal);
  }
  std::fflush(stdout);
  if (refusal) std::rethrow_exception(refusal);
  if (result.train.documents == 0)
    throw data_error(
        "nothing can be trained on this: there is no document to learn from{}.",
        result.val.documents > 0 ? ", for all were held out; see data.documents and data.holdout" : "");
  if (result.train.rows == 0)
    throw data_error("nothing can be trained on this: it does not fill one row of data.seq_len = {} tokens.",
                     recipe.data.seq_len);
}

/// Of `wanted` rows those that there are once: a loader would go on with another pass.
int64_t rows_to_show(int64_t wanted, uint64_t all, const char* unit) {
  if (static_cast<uint64_t>(wanted) <= all) return wanted;
  log::info("There {} in all.",
            all == 1 ? fmt::format("is one {}", unit) : fmt::format("are {} {}s", all, unit));
  return static_cast<int64_t>(all);
}

void show_pairs(const Recipe& recipe, const PairTokenizers& tokenizers, const Dataset& dataset,
                int64_t rows) {
  rows = rows_to_show(rows, dataset.train->size(), "pair");
  PairLoader loader(dataset.train, pair_loading_of(recipe));
  for (int64_t shown = 0; shown < rows;) {
    const PairBatch& batch = loader.next();
    for (int64_t row = 0; row < batch.rows && shown < rows; ++row, ++shown)
      fmt::print("--- pair {}, {} tokens and {} to be learned\n{}\n", shown, batch.source_lengths[row],
                 batch.target_lengths[row],
                 show_pair(batch, row, *tokenizers.source, tokenizers.target(), ::isatty(STDOUT_FILENO)));
  }
}

void show(const DataArguments& options, const Settings& settings) {
  const Recipe recipe = read_recipe(options.file, settings);
  require_files(recipe.data);
  warn_of_no_model(recipe);
  const PairTokenizers tokenizers = make_tokenizers(recipe);
  const Tokenizer& tokenizer = *tokenizers.source;
  const auto dataset =
      load_dataset(recipe.data, recipe.tasks, tokenizer, recipe.chat, tokenizers.own_target.get());
  if (dataset.bad.total() > 0) log::warn("{}", dataset.bad.report());
  if (loads_pairs(recipe)) return show_pairs(recipe, tokenizers, dataset, options.rows);
  LoaderOptions loading = loading_of(recipe, tokenizer);
  loading.plan = make_row_plan(loading, dataset.train);
  if (loading.plan->rows() == 0)
    throw data_error("there is nothing to show: the data does not fill one row.");
  loading.rows = rows_to_show(options.rows, loading.plan->rows(), "row");
  Loader loader(dataset.train, loading);
  const Batch& batch = loader.next();
  if (const auto chat = records_of(recipe.data.source) == RecordKind::kJson
                            ? chat_template(recipe.chat, tokenizer)
                            : nullptr)
    put(fmt::format("Conversations are written by {}.\n", chat->description()));
  for (int64_t row = 0; row < batch.rows; ++row) {
    put(fmt::format(
        "--- row {}, {} of {} tokens to be learned\n{}\n", row,
        std::count(batch.loss_mask + row * batch.length, batch.loss_mask + (row + 1) * batch.length, 1),
        batch.length, show_row(batch, row, tokenizer, ::isatty(STDOUT_FILENO))));
    if (options.tokens) put(show_tokens(batch, row, tokenizer));
  }
}

}  // namespace

void add_data(CLI::App& app, const Settings& settings) {
  auto* data = app.add_subcommand("data", "Look at what a recipe would train on");
  data->require_subcommand(1);
  data->footer("Example: tightloop data check configs/text.yaml --data.train my.txt");
  auto options = std::make_shared<DataArguments>();
  auto* check_verb = data->add_subcommand("check", "Count records, tokens, padding and bad records");
  check_verb->add_option("RECIPE", options->file, "A YAML file of settings")->required();
  check_verb->add_flag("--json", options->json, "For programs");
  check_verb->footer(std::string(kTakesSettings) +
                     "Example: tightloop data check configs/text.yaml --data.train my.txt --json");
  check_verb->callback([=] { check(*options, settings); });
  auto* show_verb =
      data->add_subcommand("show", "Print rows as the model sees them; trained tokens are in [brackets]");
  show_verb->add_option("RECIPE", options->file, "A YAML file of settings")->required();
  show_verb->add_option("--rows", options->rows, "How many")->check(at_least(1));
  show_verb->add_flag("--tokens", options->tokens,
                      "Also a line for each token: place, id, 1 if learned, text");
  show_verb->footer(std::string(kTakesSettings) +
                    "Example: tightloop data show configs/quickstart.yaml --rows 8");
  show_verb->callback([=] { show(*options, settings); });
  add_data_order(*data, settings);
  add_data_render(*data);
  add_data_sample(*data, settings);
}

}  // namespace tightloop::cli
