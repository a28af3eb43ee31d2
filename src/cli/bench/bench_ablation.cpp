#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/costly_monitoring.h"
#include "bench/naive_loop.h"
#include "bench/step_timer.h"
#include "cli/at_least.h"
#include "cli/bench/bench_common.h"
#include "cli/verbs.h"
#include "core/log.h"

namespace tightloop::cli {

namespace {

struct BenchAblationArguments {
  std::string file;
  int64_t steps = 50, rounds = 5;
  bool json = false, synthetic = false;
};

/// What makes a step fast, and the settings that take it away.
struct Optimization {
  const char* name;
  std::vector<std::string> off;
};

const std::vector<Optimization>& optimizations() {
  static const std::vector<Optimization> all{
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

void ablation(const BenchAblationArguments& options, const Settings& settings) {
  const Recipe recipe = recipe_to_measure(options.file, settings, options.synthetic);
  const BenchFolder scratch;
  nlohmann::json rows = nlohmann::json::array();
  std::string text =
      fmt::format("{:<32}{:>12}{:>12}{:>12}\n", "switched off", "ms without", "ms with", "costs ms");
  const auto add = [&](const std::string& name, double without, double with) {
    rows.push_back(
        {{"optimization", name}, {"ms_without", without}, {"ms_with", with}, {"ms_cost", without - with}});
    text += fmt::format("{:<32}{:>12.3f}{:>12.3f}{:>+12.3f}\n", name, without, with, without - with);
  };
  Trainer base(recipe, RunFolder::create(scratch.path / "base", false));
  StepTimer with_all(base);
  double usual = 0;
  for (const Optimization& one : optimizations()) {
    Recipe changed = recipe;
    changed.bind().apply(one.off);
    log::info("Without {} ...", one.name);
    Trainer other(changed, RunFolder::create(scratch.path / fmt::format("{}", rows.size()), false));
    StepTimer without_it(other);
    if (rows.empty()) with_all.time(options.steps);  // every shape once or twice, before it counts
    without_it.time(options.steps);
    std::vector<double> with, without;
    for (int64_t round = 0; round < options.rounds; ++round) {
      with.push_back(with_all.milliseconds(options.steps));
      without.push_back(without_it.milliseconds(options.steps));
    }
    usual = median(with);
    add(one.name, median(without), usual);
  }
  // In one process a profiler leaves its traces: after all that it must not disturb.
  log::info("With costly monitoring ...");
  CostlyMonitoring costly(with_all, scratch.path);
  costly.milliseconds(1);
  std::vector<double> watched, with;
  for (int64_t round = 0; round < options.rounds; ++round) {
    with.push_back(with_all.milliseconds(options.steps));
    watched.push_back(costly.milliseconds(options.steps));
  }
  add("cheap monitoring", median(watched), median(with));
  log::info("The naive loop ...");
  const int64_t few = std::max<int64_t>(5, options.steps / 5);
  add("all of it: the naive loop", naive_steps(recipe, scratch.path / "naive", few).milliseconds, usual);
  std::fputs((options.json ? rows.dump() + "\n" : text).c_str(), stdout);
}

}  // namespace

void add_bench_ablation(CLI::App& bench, const Settings& settings) {
  auto options = std::make_shared<BenchAblationArguments>();
  auto* verb =
      bench.add_subcommand("ablation", "What each optimization is worth: switch them off one by one");
  verb->add_option("RECIPE", options->file, "A YAML file of settings")->required();
  verb->add_option("--steps", options->steps, "Steps of a round")->check(at_least(1));
  verb->add_option("--rounds", options->rounds, "Rounds of each, alternately; medians are shown")
      ->check(at_least(1));
  verb->add_flag("--synthetic", options->synthetic, "Random ids instead of the recipe's data");
  verb->add_flag("--json", options->json, "For programs");
  verb->footer("Example: tightloop bench ablation configs/translate-base.yaml --synthetic");
  verb->callback([=] { ablation(*options, settings); });
}

}  // namespace tightloop::cli
