#pragma once

#include <string>

#include "train/optim/step_prediction.h"
#include "train/settings/recipe.h"

namespace tightloop::cli {

/// What a user says of a step of one process.
struct StepQuestion {
  double step_ms = 0;    // measured, of one micro-batch; 0: not given
  double update_ms = 0;  // of which so much is the update
  std::string run{};     // a run that has measured its parts
  double tflops = 0;     // the device's peak, where nothing was measured; 0: measured now

  bool says_speed() const { return step_ms > 0 || !run.empty() || tflops > 0; }
};

/// How long a process computes on a micro-batch of the recipe: from a run's metrics, from a measured step, or
/// estimated from FLOPs (`plan`) and the device's peak. `recomputed`: blocks with checkpointing.
ComputeTimes compute_times(const StepQuestion& asked, const Recipe& recipe, const BucketPlan& plan,
                           int64_t recomputed, at::ScalarType compute);

}  // namespace tightloop::cli
