#include <fmt/format.h>

#include <CLI/App.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/naive_loop.h"
#include "bench/step_timer.h"
#include "bench/trace.h"
#include "cli/at_least.h"
#include "cli/bench/bench_common.h"
#include "cli/verbs.h"
#include "core/log.h"
#include "dist/processes.h"
#include "ops/attention/attention_counter.h"
#include "train/engine/device_speed.h"
#include "train/engine/precision.h"

namespace tightloop::cli {

namespace fs = std::filesystem;

namespace {

struct BenchStepArguments {
  std::string file, profile, against;
  int64_t steps = 20;
  bool json = false, synthetic = false, naive = false;
};

struct Part {
  const char *name, *meaning;
  LossBuffer::Column column;
};
constexpr Part kParts[] = {
    {"forward", "forward pass and loss", LossBuffer::kForward},
    {"backward", "backward pass, gradients added up", LossBuffer::kBackward},
    {"update", "norm, clipping, optimizer", LossBuffer::kUpdate},
    {"data", "device waits for its micro-batch", LossBuffer::kData},
    {"idle", "device waits for the host", LossBuffer::kIdle},
};

double seconds_of(const StepSums& step) {
  double seconds = 0;
  for (const Part& part : kParts) seconds += step[part.column];
  return seconds;
}

nlohmann::json measure(StepTimer& timer, const BenchStepArguments& options) {
  const StepTimes times = timer.time(options.steps);
  Trainer& trainer = timer.trainer();
  const auto steps = static_cast<double>(options.steps);
  nlohmann::json parts;
  double timed = 0, busy = 0;
  std::vector<double> ms;
  for (const StepSums& step : times.steps) ms.push_back(seconds_of(step) * 1e3);
  for (const Part& part : kParts) {
    double sum = 0;
    for (const StepSums& step : times.steps) sum += step[part.column];
    parts[part.name] = sum / steps * 1e3;
    timed += sum;
    if (part.column == LossBuffer::kForward || part.column == LossBuffer::kBackward ||
        part.column == LossBuffer::kUpdate)
      busy += sum;
  }
  parts["copy"] = times.copies / steps * 1e3;
  parts["host"] = times.host / steps * 1e3;
  const double wall = times.seconds / steps * 1e3;
  const bool by_device = timed > 0;
  Device& device = trainer.device();
  const double flops = trainer.task().flops_per_token() * static_cast<double>(times.tokens) / times.seconds;
  const auto& precision = trainer.recipe().train.precision;
  const double gemm = measure_gemm_flops(device, compute_dtype(precision, device));
  const auto share = [&](double peak) {
    const auto part = utilization(flops, peak);
    return part ? nlohmann::json(*part) : nlohmann::json();
  };
  nlohmann::json attention = nlohmann::json::array();
  for (const auto& use : ops::attention_used()) attention.push_back({{"kind", use.kind}, {"by", use.by()}});
  return {{"ms", by_device ? median(ms) : wall},
          {"ms_wall", wall},
          {"tokens_s", static_cast<double>(times.tokens) / times.seconds},
          {"mfu", share(gemm)},
          {"mfu_data_sheet", share(device.data_sheet_flops())},
          {"gemm_tflops", gemm / 1e12},
          {"precision", precision_name(precision, device)},
          {"gpu_busy", by_device ? nlohmann::json(busy / timed) : nlohmann::json()},
          {"peak_gib", static_cast<double>(times.peak_memory) / (1 << 30)},
          {"syncs", times.syncs.total()},
          {"syncs_by_cause", times.syncs.causes()},
          {"data_wait", times.waited / times.seconds},
          {"parts", parts},
          {"attention", attention},
          {"parts_share_of_wall", timed / times.seconds},
          {"graphs",
           {{"captured", times.graphs.captured},
            {"replayed", times.graphs.replayed},
            {"eager", times.graphs.eager}}},
          {"steps", options.steps}};
}

std::string table_of(const nlohmann::json& result, bool gpu) {
  const double ms = result["ms_wall"];
  std::string text = fmt::format("{:<10}{:>10}{:>8}\n", "part", "ms", "share");
  for (const Part& part : kParts) {
    const double value = result["parts"][part.name];
    text += fmt::format("{:<10}{:>10.3f}{:>7.1f}%  {}\n", part.name, value, 100 * value / ms, part.meaning);
  }
  text += fmt::format("{:<10}{:>10.3f}           beside the rest: copies to the device\n", "copy",
                      result["parts"]["copy"].get<double>());
  text += fmt::format("{:<10}{:>10.3f}           beside the rest: the host starts the step\n", "host",
                      result["parts"]["host"].get<double>());
  text += fmt::format("{:<10}{:>10.3f}           median of the device's {:.3f}\n", "step, wall", ms,
                      result["ms"].get<double>());
  const std::string peak =
      fmt::format("the measured GEMM peak ({:.3g} TFLOP/s in {})", result["gemm_tflops"].get<double>(),
                  result["precision"].get<std::string>());
  text += fmt::format("{:.0f} tokens/s, ", result["tokens_s"].get<double>());
  text += result["mfu"].is_number()
              ? fmt::format("{:.1f} % of {}", 100 * result["mfu"].get<double>(), peak)
              : fmt::format("MFU unknown: the step came out above {}, so that is no reliable peak", peak);
  if (result["mfu_data_sheet"].is_number())
    text += fmt::format(", {:.1f} % of its data sheet", 100 * result["mfu_data_sheet"].get<double>());
  if (gpu && result["gpu_busy"].is_number())
    text += fmt::format("; busy {:.2f} % of the time", 100 * result["gpu_busy"].get<double>());
  text += fmt::format("\npeak {:.2f} GiB; waiting for data {:.2f} %", result["peak_gib"].get<double>(),
                      100 * result["data_wait"].get<double>());
  if (gpu)
    text += fmt::format("; in {} steps the CPU waited for the GPU {} times; {} CUDA graphs captured",
                        result["steps"].get<int64_t>(), result["syncs"].get<int64_t>(),
                        result["graphs"]["captured"].get<int64_t>());
  if (!result["attention"].empty()) text += "\nattention: " + ops::attention_text();
  return text;
}

void print(const BenchStepArguments& options, const nlohmann::json& json, const std::string& text) {
  std::fputs(((options.json ? json.dump() : text) + "\n").c_str(), stdout);
}

/// The recipe against itself with other settings, by turns in one process, so that a noisy machine slows
/// both.
void compare(Trainer& trainer, const BenchStepArguments& options, Recipe recipe, const fs::path& folder) {
  constexpr int kPairs = 21;
  std::vector<std::string> words;
  std::istringstream split(options.against);
  for (std::string word; split >> word;) words.push_back("--" + word);
  Config config = recipe.bind();
  config.apply(words);
  Trainer other(recipe, RunFolder::create(folder, false));
  StepTimer as_it_is(trainer), changed(other);
  std::vector<double> ratios, ours, theirs;
  for (int pair = 0; pair < kPairs; ++pair) {
    const auto time = [&](StepTimer& which) { return which.milliseconds(options.steps); };
    // Each goes first every other time.
    const double first = time(pair % 2 ? changed : as_it_is), second = time(pair % 2 ? as_it_is : changed);
    ours.push_back(pair % 2 ? second : first), theirs.push_back(pair % 2 ? first : second);
    ratios.push_back(theirs.back() / ours.back());
  }
  print(
      options,
      {{"ms", median(ours)}, {"ms_against", median(theirs)}, {"ratio", median(ratios)}, {"pairs", kPairs}},
      fmt::format("{:.3f} ms as the recipe is, {:.3f} ms with {}: ratio {:.4f}, the median of {} pairs of {} "
                  "steps each",
                  median(ours), median(theirs), options.against, median(ratios), kPairs, options.steps));
}

void bench_step(const BenchStepArguments& options, const Settings& settings) {
  const Recipe recipe = recipe_to_measure(options.file, settings, options.synthetic);
  if (options.naive) {
    const BenchFolder scratch;
    const auto times = naive_steps(recipe, scratch.path, options.steps);
    return print(options,
                 {{"ms", times.milliseconds},
                  {"tokens_s", times.tokens_s},
                  {"syncs", times.syncs},
                  {"steps", options.steps}},
                 fmt::format("the naive loop: median {:.2f} ms, {:.0f} tokens/s, {} syncs in {} steps",
                             times.milliseconds, times.tokens_s, times.syncs, options.steps));
  }
  const BenchFolder scratch;
  Processes processes;  // of several, the others measure beside this one
  if (!processes.main()) log::set_terminal_level(log::Level::kWarning);
  Trainer trainer(recipe, RunFolder::create(scratch.path / "a", false), {.processes = &processes});
  if (!options.against.empty()) return compare(trainer, options, recipe, scratch.path / "b");
  constexpr int64_t kTraced = 3;  // steps
  StepTimer timer(trainer);
  nlohmann::json result = measure(timer, options);
  std::string kernels;
  if (!options.profile.empty()) {
    const bool gpu = trainer.device().is_cuda();
    const auto table = trace(options.profile, gpu, [&] { timer.time(kTraced); });
    if (gpu) result["gpu_busy_traced"] = table.busy();
    result["kernels"] = nlohmann::json::array();
    for (const KernelRow& row : table.rows)
      result["kernels"].push_back({{"name", row.name},
                                   {"count", static_cast<double>(row.count) / kTraced},
                                   {"ms", row.ms / kTraced}});
    kernels = "\n\n" + table_text(table, kTraced, gpu ? "kernel" : "operator");
  }
  print(options, result, table_of(result, trainer.device().is_cuda()) + kernels);
}

}  // namespace

void add_bench_step(CLI::App& bench, const Settings& settings) {
  auto options = std::make_shared<BenchStepArguments>();
  auto* verb = bench.add_subcommand("step", "Time training steps of a recipe, part by part");
  verb->add_option("RECIPE", options->file, "A YAML file of settings")->required();
  verb->add_option("--steps", options->steps, "Steps to time")->check(at_least(1));
  verb->add_flag("--synthetic", options->synthetic, "Random ids instead of the recipe's data");
  verb->add_flag("--naive", options->naive,
                 "A plain training loop for comparison: fp32, no fused operators, the loss read every step");
  verb->add_option(
      "--profile", options->profile,
      "Also write a Chrome trace of a few steps to this file, and list the kernels that took longest");
  verb->add_option("--against", options->against,
                   "Compare with the same recipe under other settings, alternately: \"train.graph=off\"");
  verb->add_flag("--json", options->json, "For programs");
  verb->footer(
      "Examples:\n"
      "  tightloop bench step configs/quickstart.yaml --steps 50 --json\n"
      "  tightloop bench step configs/gpt2-124m.yaml --synthetic --profile trace.json");
  verb->callback([=] { bench_step(*options, settings); });
}

}  // namespace tightloop::cli
