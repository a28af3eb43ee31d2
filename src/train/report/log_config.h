#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/choice.h"

namespace tightloop {

class Fields;

/// How the FLOPs of a token are counted for MFU.
enum class FlopCount { kShapes, kProfiler };
template <>
inline constexpr auto kChoices<FlopCount> = std::to_array<Choice<FlopCount>>({
    {FlopCount::kShapes, "shapes", "from the model's shapes"},
    {FlopCount::kProfiler, "profiler", "from torch's operators as they run"},
});

/// Section "log": what is written about a run, and how often. Steps are optimizer steps; 0 means never.
struct LogConfig {
  int64_t detail_steps = 50, dataset_metrics_steps = 10, memory_steps = 50, flops_steps = 500;
  int64_t flush_steps = 200;
  FlopCount flops = FlopCount::kShapes;
  bool reduced_logging = false, log_dataset_metrics = true, asynchronous = true;
  bool tensorboard = true, csv = false;

  void describe(Fields& fields);
};

/// Whether Weights & Biases gets a run's metrics.
enum class WandbMode { kOff, kOnline, kOffline };
template <>
inline constexpr auto kChoices<WandbMode> = std::to_array<Choice<WandbMode>>({
    {WandbMode::kOff, "off"},
    {WandbMode::kOnline, "online", "uploaded while the run trains (wandb login)"},
    {WandbMode::kOffline, "offline", "kept in the run's folder, for wandb sync"},
});

/// Section "wandb".
struct WandbConfig {
  WandbMode mode = WandbMode::kOff;
  std::string project = "tightloop", entity, name, id, python = "python3";
  std::vector<std::string> tags;

  void describe(Fields& fields);
};

/// What is told besides loss, rate and epoch.
struct Due {
  bool detail = false;    // gradient norm, times
  bool datasets = false;  // accuracy, and loss and accuracy by source
  bool memory = false;
  bool flops = false;  // of a token; log.flops profiler: counted anew
};

/// The one place that decides it, for the steps after `before` up to `step`: a line that covers them, or one
/// of them alone. `last`: the run's last line, in which everything is told once more.
Due due(const LogConfig& config, int64_t before, int64_t step, bool last = false);

}  // namespace tightloop
