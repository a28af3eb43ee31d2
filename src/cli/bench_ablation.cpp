#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/at_least.h"
#include "cli/recipe.h"
#include "cli/verbs.h"
#include "core/log.h"
#include "train/naive_loop.h"
#include "train/trainer.h"

namespace tightloop::cli {

namespace fs = std::filesystem;

namespace {

struct Options {
  std::string file;
  int64_t steps = 50, rounds = 5;
  bool json = false, synthetic = false;
};

/// What makes a step fast, and the settings that take it away.
struct Cure {
  const char* name;
  std::vector<std::string> off;
};

const std::vector<Cure>& cures() {
  static const std::vector<Cure> all{
      {"parallel loading", {"--data.num_workers", "0"}},
      {"tokenizing ahead, in batches", {"--data.tokenize", "live", "--data.num_workers", "1"}},
      {"pinned memory", {"--data.pin_memory", "false"}},
      {"copying ahead", {"--train.copy_ahead", "false"}},
      {"a stream for copies", {"--train.copy_stream", "false"}},
      {"deferred loss", {"--train.loss_extract_interval", "1"}},
      {"mixed precision", {"--train.precision", "fp32"}},
      {"graphs", {"--train.graph", "off"}},
      {"fused operators", {"--ops.plain", "true"}},
      {"pools of memory (and graphs)", {"--train.pools", "false"}},
      {"gradients dropped, not zeroed", {"--train.set_to_none", "false"}},
      {"asynchronous logging", {"--log.asynchronous", "false", "--train.logging_steps", "1"}},
      {"rare memory statistics", {"--log.memory_steps", "1"}},
      {"cache emptied only when full", {"--train.empty_cache_steps", "1"}},
  };
  return all;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void ablation(const Options& options, const Settings& settings) {
  Recipe recipe = read_recipe(options.file, settings);
  if (options.synthetic) recipe.data.source = "random", recipe.data.rows = "stream";
  const fs::path folder = fs::temp_directory_path() / fmt::format("tightloop-ablation-{}", ::getpid());
  nlohmann::json rows = nlohmann::json::array();
  std::string text =
      fmt::format("{:<32}{:>12}{:>12}{:>12}\n", "switched off", "ms without", "ms with", "costs ms");
  const auto add = [&](const std::string& name, double without, double with) {
    rows.push_back({{"cure", name}, {"ms_without", without}, {"ms_with", with}, {"ms_cost", without - with}});
    text += fmt::format("{:<32}{:>12.3f}{:>12.3f}{:>+12.3f}\n", name, without, with, without - with);
  };
  try {
    Trainer base(recipe, RunFolder::create(folder / "base", false));
    const auto time = [&](Trainer& trainer) {
      return trainer.time_steps(options.steps).seconds / static_cast<double>(options.steps) * 1e3;
    };
    double naive_base = 0;
    for (const Cure& cure : cures()) {
      Recipe changed = recipe;
      changed.bind().apply(cure.off);
      log::info("Without {} ...", cure.name);
      std::vector<double> with, without;
      {
        Trainer other(changed, RunFolder::create(folder / fmt::format("{}", rows.size()), false));
        if (rows.empty()) time(base);  // every shape once or twice, before it counts
        time(other);
        for (int64_t round = 0; round < options.rounds; ++round) {
          with.push_back(time(base));
          without.push_back(time(other));
        }
      }
      naive_base = median(with);
      add(cure.name, median(without), naive_base);
    }
    log::info("The naive loop ...");
    add("all of it: the naive loop",
        naive_steps(recipe, folder / "naive", std::max<int64_t>(5, options.steps / 5)).milliseconds,
        naive_base);
  } catch (...) {
    fs::remove_all(folder);
    throw;
  }
  fs::remove_all(folder);
  std::fputs((options.json ? rows.dump() + "\n" : text).c_str(), stdout);
}

}  // namespace

void add_bench_ablation(CLI::App& bench, const Settings& settings) {
  auto options = std::make_shared<Options>();
  auto* verb = bench.add_subcommand("ablation", "What each thing that makes steps fast is worth, one by one");
  verb->add_option("RECIPE", options->file, "A YAML file of settings")->required();
  verb->add_option("--steps", options->steps, "Steps of a round")->check(at_least(1));
  verb->add_option("--rounds", options->rounds, "Rounds of each, by turns; medians are shown")
      ->check(at_least(1));
  verb->add_flag("--synthetic", options->synthetic, "Random ids instead of the recipe's data");
  verb->add_flag("--json", options->json, "For programs");
  verb->footer("Example: tightloop bench ablation configs/translate-base.yaml --synthetic");
  verb->callback([=] { ablation(*options, settings); });
}

}  // namespace tightloop::cli
