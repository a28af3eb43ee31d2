#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/at_least.h"
#include "cli/heat.h"
#include "cli/main_settings.h"
#include "cli/model_choice.h"
#include "cli/output.h"
#include "cli/recipe.h"
#include "cli/verbs.h"
#include "cli/verbs/inspect_gguf.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/log.h"
#include "data/batch/show.h"
#include "data/dataset.h"
#include "infer/token_scores.h"
#include "train/run/checkpoint.h"
#include "train/run/checkpoint_name.h"
#include "train/run/resume_check.h"
#include "train/run/run_tokenizer.h"
#include "train/run/saved_model.h"
#include "train/settings/loading.h"

namespace tightloop::cli {

namespace {

struct InspectLossOptions {
  ModelChoice model;
  int64_t row = 0;
  bool train = false, json = false;
};

struct BatchOptions {
  ModelChoice model;
  std::string file;
  int64_t rows = 2, index = 0;
  bool json = false;
};

bool colour() { return ::isatty(STDOUT_FILENO) && !std::getenv("NO_COLOR"); }

Dataset data_of(const Recipe& recipe, const Tokenizer& tokenizer) {
  auto dataset = load_dataset(recipe.data, recipe.tasks, tokenizer, recipe.chat);
  if (dataset.bad.total() > 0) log::warn("{}", dataset.bad.report());
  return dataset;
}

/// Row `row` of a part of the data, rows in the order of the files.
const Batch& row_batch(Loader& loader, int64_t row, const char* part) {
  const auto rows = static_cast<int64_t>(loader.plan().rows());
  if (row < rows) return loader.next();
  throw usage_error("there is no row {}: the {} data has {}, counted from 0.", row, part,
                    counted(rows, "row"));
}

void inspect_loss(const InspectLossOptions& options, const Settings& settings) {
  auto run = options.model.load();
  Config config = run.recipe.bind();
  config.apply(settings);
  require_run_files(run.recipe.data, RunFolder(checkpoint_place(options.model.folder()).run));
  if (!config.commanded("data.val")) warn_of_changed_data(run.recipe.data, run.metadata);
  const auto dataset = data_of(run.recipe, *run.tokenizer);
  const char* part = options.train ? "training" : "held-out";
  const auto& documents = options.train ? dataset.train : dataset.val;
  if (documents->size() == 0)
    throw usage_error("the run has no {} data{}.", part, options.train ? "" : "; try --train");
  LoaderOptions loading = loading_of(run.recipe, *run.tokenizer);
  loading.shuffle = false, loading.rows = 1, loading.threads = 0, loading.first_batch = options.row;
  Loader loader(documents, loading);
  const Batch& batch = row_batch(loader, options.row, part);
  const auto tensor = [&](int32_t* data) {
    return at::from_blob(data, {1, batch.length}, at::kInt).to(at::kLong);
  };
  const auto scores = score_tokens(*run.model, tensor(batch.inputs), tensor(batch.targets));

  std::vector<TokenLoss> tokens;
  double sum = 0;
  const auto text = [&](int64_t id) {
    return id < run.tokenizer->vocab_size()
               ? run.tokenizer->decode(std::vector<int32_t>{static_cast<int32_t>(id)})
               : "";
  };
  for (int64_t t = 0; t < batch.length; ++t) {
    tokens.push_back({.position = t,
                      .id = batch.targets[t],
                      .text = text(batch.targets[t]),
                      .learned = batch.loss_mask[t] != 0,
                      .loss = scores.loss.const_data_ptr<double>()[t],
                      .rank = scores.rank.const_data_ptr<int64_t>()[t],
                      .best = text(scores.best.const_data_ptr<int64_t>()[t])});
    if (batch.loss_mask[t]) sum += tokens.back().loss;
  }
  const double mean = batch.supervised ? sum / static_cast<double>(batch.supervised) : 0;
  if (options.json) {
    nlohmann::json json{
        {"row", options.row}, {"length", batch.length},         {"supervised", batch.supervised},
        {"loss", mean},       {"first_input", batch.inputs[0]}, {"tokens", nlohmann::json::array()}};
    for (const auto& token : tokens) {
      json["tokens"].push_back({{"position", token.position},
                                {"id", token.id},
                                {"text", token.text},
                                {"mask", token.learned ? 1 : 0},
                                {"loss", token.loss},
                                {"rank", token.rank},
                                {"best", token.best}});
    }
    return static_cast<void>(std::fputs((dump(json) + "\n").c_str(), stdout));
  }
  // Padding stands at the end.
  while (!tokens.empty() && !tokens.back().learned &&
         static_cast<int64_t>(tokens.size()) > batch.length - batch.padding)
    tokens.pop_back();
  const std::string report =
      loss_table(tokens, colour()) +
      fmt::format("\nrow {} of the {} data: {} of {} tokens are learned, their mean loss is {:.4f}\n\n{}\n",
                  options.row, part, batch.supervised, batch.length, mean, heat_strip(tokens, colour()));
  std::fwrite(report.data(), 1, report.size(), stdout);
}

void inspect_batch(const BatchOptions& options, const Settings& settings) {
  Recipe recipe;
  std::unique_ptr<Tokenizer> tokenizer;
  if (options.file.empty()) {
    const auto [root, step] = checkpoint_place(options.model.folder());
    const auto run = RunFolder::open(root);
    nlohmann::json metadata;
    // A run may be looked into before its first checkpoint.
    if (checkpoint_steps(run.checkpoints()).empty()) {
      recipe.bind().load(run.config());
    } else {
      const SavedModel saved(run.root(), step);
      recipe = saved.recipe(), metadata = saved.metadata();
    }
    recipe.bind().apply(settings);
    require_run_files(recipe.data, run);
    warn_of_changed_data(recipe.data, metadata);
    tokenizer = load_tokenizer(run.tokenizer());
  } else {
    recipe = read_recipe(options.file, settings);
    tokenizer = make_tokenizer(recipe);
  }
  const auto dataset = data_of(recipe, *tokenizer);
  LoaderOptions loading = loading_of(recipe, *tokenizer);
  loading.first_batch = options.index, loading.threads = 0;
  Loader loader(dataset.train, loading);
  const Batch& batch = loader.next();
  const int64_t positions = batch.rows * batch.length;
  const auto share = [&](int64_t count) {
    return static_cast<double>(count) / static_cast<double>(positions);
  };
  std::map<std::string, int64_t> sources;
  for (int64_t row = 0; row < batch.rows; ++row) ++sources[dataset.sources.at(batch.sources[row])];
  const auto [low, high] = std::minmax_element(batch.inputs, batch.inputs + positions);
  if (options.json) {
    const nlohmann::json json{{"index", batch.index},
                              {"rows", batch.rows},
                              {"length", batch.length},
                              {"supervised", batch.supervised},
                              {"supervised_share", share(batch.supervised)},
                              {"padding_share", share(batch.padding)},
                              {"documents", batch.documents},
                              {"sources", sources},
                              {"smallest_id", *low},
                              {"largest_id", *high}};
    return static_cast<void>(std::fputs((dump(json) + "\n").c_str(), stdout));
  }
  std::string out = fmt::format(
      "micro-batch {}: inputs, targets and mask are {} x {} tokens; ids {} to {}\n"
      "{:.1f} % are learned, {:.1f} % are padding, {}\n",
      batch.index, counted(batch.rows, "row"), batch.length, *low, *high, 100 * share(batch.supervised),
      100 * share(batch.padding), counted(batch.documents, "document"));
  for (const auto& [source, rows] : sources) out += fmt::format("  {}: {}\n", source, counted(rows, "row"));
  for (int64_t row = 0; row < std::min(options.rows, batch.rows); ++row) {
    const auto* mask = batch.loss_mask + row * batch.length;
    out += fmt::format("--- row {}, {} of {} tokens are learned\n{}\n", row,
                       std::count(mask, mask + batch.length, 1), batch.length,
                       show_row(batch, row, *tokenizer, colour()));
  }
  std::fwrite(out.data(), 1, out.size(), stdout);
}

}  // namespace

void add_inspect(CLI::App& app, const Settings& settings) {
  auto* inspect =
      app.add_subcommand("inspect", "Look into losses and batches, token by token, and into GGUF files");
  inspect->require_subcommand(1);
  inspect->footer("Example: tightloop inspect loss --run runs/quickstart --row 3");
  auto loss = std::make_shared<InspectLossOptions>();
  auto* loss_verb = inspect->add_subcommand("loss", "Every token of a row: mask, loss and rank");
  loss->model.add_to(*loss_verb);
  loss_verb->add_option("--row", loss->row, "Which row, from 0")->check(at_least(0));
  loss_verb->add_flag("--train", loss->train, "A row of the training data (default: of the held-out data)");
  loss_verb->add_flag("--json", loss->json, "For programs");
  loss_verb->footer(std::string(kTakesSettings) +
                    "Example: tightloop inspect loss --run runs/quickstart --row 3");
  loss_verb->callback([=] { inspect_loss(*loss, settings); });

  auto batch = std::make_shared<BatchOptions>();
  auto* batch_verb =
      inspect->add_subcommand("batch", "A micro-batch: shapes, trained tokens, its first rows");
  batch_verb->add_option("RECIPE", batch->file, "A YAML file of settings (default: those of the run)");
  batch->model.add_to(*batch_verb);
  batch_verb->add_option("--index", batch->index, "Which micro-batch, from 0")->check(at_least(0));
  batch_verb->add_option("--rows", batch->rows, "Rows to show")->check(at_least(0));
  batch_verb->add_flag("--json", batch->json, "For programs");
  batch_verb->footer(std::string(kTakesSettings) +
                     "Example: tightloop inspect batch configs/quickstart.yaml --rows 4");
  batch_verb->callback([=] { inspect_batch(*batch, settings); });

  add_inspect_gguf(*inspect);
}

}  // namespace tightloop::cli
