#include "data/store/prepare.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>

#include "cli/at_least.h"
#include "cli/main_settings.h"
#include "cli/recipe.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "train/run/run_tokenizer.h"
#include "train/settings/loading.h"

namespace tightloop::cli {

namespace {

struct PrepareArguments {
  std::string file, output;
  uint64_t shard_tokens = PrepareOptions().shard_tokens;
};

std::string summary(const PrepareProgress& progress, bool pairs) {
  return fmt::format("{} records, {} training tokens in {} {}, {} held out",
                     human_count(static_cast<double>(progress.records)),
                     human_count(static_cast<double>(progress.train_tokens)),
                     progress.train_documents / (pairs ? 2 : 1), pairs ? "pairs" : "documents",
                     human_count(static_cast<double>(progress.val_tokens)));
}

void run_prepare(const PrepareArguments& options, const Settings& settings) {
  const Recipe recipe = read_recipe(options.file, settings);
  require_files(recipe.data);
  const PairTokenizers tokenizers = make_tokenizers(recipe);
  const auto report =
      prepare({recipe.data, recipe.tasks, recipe.chat, *tokenizers.source, tokenizers.own_target.get()},
              {.folder = options.output, .shard_tokens = options.shard_tokens, .progress = {}});
  if (report.bad.total() > 0) log::warn("{}", report.bad.report());
  if (report.totals.train_documents == 0)
    throw data_error("there is no document to learn from, so '{}' is of no use.", options.output);
  const std::string tokenizer =
      fmt::format("--tokenizer.path {}", shell_word(options.output + "/tokenizer")) +
      (tokenizers.own_target
           ? fmt::format(" --tokenizer.target_path {}", shell_word(options.output + "/tokenizer_target"))
           : "");
  if (!report.mixture.empty()) {
    log::info("{}.\nTrain on it with the settings in {}/mixture.yaml and {}",
              summary(report.totals, loads_pairs(recipe)), options.output, tokenizer);
    return;
  }
  log::info("{}.\nTrain on it with: --data.source shards --data.train {} {}",
            summary(report.totals, loads_pairs(recipe)), shell_word(options.output), tokenizer);
}

}  // namespace

void add_prepare(CLI::App& app, const Settings& settings) {
  auto options = std::make_shared<PrepareArguments>();
  auto* verb = app.add_subcommand("prepare", "Tokenize a recipe's data once, into shards");
  verb->add_option("RECIPE", options->file, "A YAML file of settings")->required();
  verb->add_option("--output", options->output, "Folder for the shards")->required();
  verb->add_option("--shard-tokens", options->shard_tokens, "Tokens in a shard")->check(at_least(1));
  verb->footer(std::string(kTakesSettings) +
               "Example: tightloop prepare configs/text.yaml --data.train 'books/*.txt' --output shards");
  verb->callback([=] { run_prepare(*options, settings); });
}

}  // namespace tightloop::cli
