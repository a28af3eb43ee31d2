#include "cli/fit/compute_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "cli/model_choice.h"
#include "core/error.h"
#include "train/engine/device_speed.h"
#include "train/run/run_folder.h"
#include "train/watch/run_log.h"

namespace tightloop::cli {

namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Of the second half of its lines, in which nothing starts any more.
std::optional<double> metric_of(const std::vector<nlohmann::json>& lines, const std::string& name) {
  std::vector<double> values;
  for (const auto& line : lines)
    if (const auto value = number_in(line, name)) values.push_back(*value);
  if (values.empty()) return {};
  values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return median(values);
}

ComputeTimes of_run(const std::string& name, const Recipe& recipe) {
  const RunFolder run = RunFolder::open(existing_run_of(name));
  Recipe own;
  own.bind().load(run.config().string());
  if (own.train.micro_batch != recipe.train.micro_batch || own.data.seq_len != recipe.data.seq_len)
    throw usage_error(
        "the run '{}' was measured with {} rows of {} tokens (train.micro_batch, data.seq_len), and the "
        "recipe "
        "has {} of {}: give the same.",
        name, own.train.micro_batch, own.data.seq_len, recipe.train.micro_batch, recipe.data.seq_len);
  const auto lines = JsonLinesReader(run.metrics()).read();
  const auto forward = metric_of(lines, "perf/forward_time"),
             backward = metric_of(lines, "perf/backward_time"), update = metric_of(lines, "perf/update_time");
  if (!forward || !backward || !update)
    throw usage_error(
        "the metrics of '{}' have no times of forward, backward and update (train.time_parts, "
        "log.detail_steps): give --step-ms.",
        name);
  const auto passes = static_cast<double>(own.train.accumulate);
  return {.forward = *forward / passes,
          .backward = *backward / passes,
          .update = *update,
          .other =
              metric_of(lines, "perf/data_time").value_or(0) + metric_of(lines, "perf/idle_time").value_or(0),
          .source = fmt::format("Compute is measured: the medians of the second half of '{}'.", name)};
}

}  // namespace

ComputeTimes compute_times(const StepQuestion& asked, const Recipe& recipe, const BucketPlan& plan,
                           int64_t recomputed, at::ScalarType compute) {
  if (!asked.run.empty()) return of_run(asked.run, recipe);
  // What checkpointing computes again is the forward pass of those blocks, without the head.
  const auto head = 2.0 * static_cast<double>(recipe.model.vocab_size * recipe.model.width);
  const double again = (plan.forward_flops - head) * static_cast<double>(recomputed) /
                       static_cast<double>(recipe.model.layers);
  const double flops = plan.forward_flops + plan.backward_flops + again;
  const double forward = plan.forward_flops / flops;
  if (asked.step_ms > 0) {
    const double passes = (asked.step_ms - asked.update_ms) / 1e3;
    if (passes <= 0) throw usage_error("--update-ms is a part of --step-ms, and must be smaller.");
    return {.forward = passes * forward,
            .backward = passes * (1 - forward),
            .update = asked.update_ms / 1e3,
            .source = fmt::format(
                "Compute is measured: --step-ms {:g} for one micro-batch, of which {:g} ms are the update "
                "(--update-ms). Of the rest {:.0f} % is the forward pass, by its FLOPs.",
                asked.step_ms, asked.update_ms, 100 * forward)};
  }
  constexpr double kUtilization = 0.5;
  Device& device = tightloop::device(recipe.train.device);
  const double peak = asked.tflops > 0 ? 1e12 * asked.tflops : measure_gemm_flops(device, compute);
  const double seconds =
      flops * static_cast<double>(recipe.train.micro_batch * recipe.data.seq_len) / (kUtilization * peak);
  return {
      .forward = seconds * forward,
      .backward = seconds * (1 - forward),
      .source = fmt::format(
          "Compute is an ESTIMATE: FLOPs at {:.0f} % of {:.4g} TFLOP/s ({}), the update not counted. Give "
          "--step-ms, from 'tightloop bench step', or --run for a prediction.",
          100 * kUtilization, peak / 1e12,
          asked.tflops > 0 ? "--tflops" : "matrix products measured on " + device.description())};
}

}  // namespace tightloop::cli
