#include "bench/step_timer.h"

#include <algorithm>
#include <chrono>

#include "train/engine/precision.h"

namespace tightloop {

StepTimes StepTimer::time(int64_t steps) {
  constexpr int64_t kWarmUp = 4;  // graphs are captured the second time around
  Trainer& t = trainer_;
  const Recipe& recipe = t.recipe();
  recipe.ops.apply();  // another trainer may have asked for something else
  apply_precision(recipe.train, t.device());
  t.device().use_pools(recipe.train.pools);
  StepTimes times;
  if (!warm_) t.take_steps(std::max(kWarmUp, 2 * recipe.log.dataset_metrics_steps), times.steps);
  warm_ = true;
  t.device().synchronize();
  times.steps.clear();
  const Syncs before = t.syncs();
  const double waited = t.task().waited(), host = t.host_seconds(), copies = t.copy_seconds();
  const auto began = std::chrono::steady_clock::now();
  t.take_steps(steps, times.steps);
  times.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  times.waited = t.task().waited() - waited;
  times.host = t.host_seconds() - host, times.copies = t.copy_seconds() - copies;
  times.tokens = steps * recipe.train.accumulate * t.task().positions();
  times.peak_memory = t.device().memory_stats().allocated_peak;
  times.syncs = t.syncs().since(before), times.graphs = t.graphs();
  return times;
}

}  // namespace tightloop
