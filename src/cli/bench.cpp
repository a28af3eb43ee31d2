#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/verbs.h"
#include "core/log.h"
#include "train/trainer.h"

namespace tightloop::cli {

namespace {

namespace fs = std::filesystem;

struct StepOptions {
  std::string file;
  int64_t steps = 20;
  bool json = false;
};

/// A folder for a run that nobody keeps.
struct Scratch {
  fs::path path = fs::temp_directory_path() / fmt::format("tightloop-bench-{}", ::getpid());
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

void bench_step(const StepOptions& options, const Settings& settings) {
  Recipe recipe;
  Config config = recipe.bind();
  config.load(options.file);
  config.apply(settings);
  const Scratch scratch;
  Trainer trainer(recipe, RunFolder::create(scratch.path, false));
  auto times = trainer.time_steps(options.steps);
  std::ranges::sort(times.milliseconds);
  const double median = times.milliseconds[times.milliseconds.size() / 2];
  const nlohmann::json json{{"ms", median},
                            {"ms_min", times.milliseconds.front()},
                            {"ms_max", times.milliseconds.back()},
                            {"tokens_s", times.tokens_per_second},
                            {"data_wait", times.data_wait_share},
                            {"steps", options.steps}};
  std::fputs(options.json
                 ? (json.dump() + "\n").c_str()
                 : fmt::format("{} steps: median {:.2f} ms ({:.2f} to {:.2f}), {:.0f} tokens/s, waiting for "
                               "data {:.2f} %\n",
                               options.steps, median, times.milliseconds.front(), times.milliseconds.back(),
                               times.tokens_per_second, 100 * times.data_wait_share)
                       .c_str(),
             stdout);
}

}  // namespace

void add_bench(CLI::App& app, const Settings& settings) {
  auto* bench = app.add_subcommand("bench", "Measure speed on this machine");
  bench->require_subcommand(1);
  auto options = std::make_shared<StepOptions>();
  auto* step = bench->add_subcommand("step", "Time training steps of a recipe");
  step->add_option("RECIPE", options->file, "A YAML file of settings")->required();
  step->add_option("--steps", options->steps, "Steps to time")->check(CLI::PositiveNumber);
  step->add_flag("--json", options->json, "For programs");
  step->footer("Example: tightloop bench step configs/quickstart.yaml --steps 50 --json");
  step->callback([=] { bench_step(*options, settings); });
}

}  // namespace tightloop::cli
