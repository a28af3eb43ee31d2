#include "bench/step_timer.h"

#include <algorithm>
#include <chrono>

#include "core/interrupt.h"
#include "train/engine/precision.h"
#include "train/report/sinks.h"

namespace tightloop {

StepTimes StepTimer::time(int64_t steps) {
  constexpr int64_t kWarmUp = 4;  // graphs are captured the second time around
  constexpr int64_t kEndless = int64_t{1} << 40;
  Trainer& t = trainer_;
  const Recipe& recipe = t.recipe_;
  recipe.ops.apply();  // another trainer may have asked for something else
  apply_precision(recipe.train);
  t.device_.use_pools(recipe.train.pools);
  StepTimes times;
  t.taken_ = &times.steps;
  const auto some = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      throw_if_interrupted();
      t.step(t.done_ + 1, *feed_);
      if (t.done_ % recipe.train.logging_steps == 0) t.progress_->end_line();
      if (t.buffer_->full()) t.extract(/*all=*/recipe.train.loss_extract_interval == 1);
      t.look_after_memory(t.done_);
    }
    t.extract(/*all=*/true);
  };
  if (!feed_) {
    feed_ = t.open_feed(kEndless);
    std::vector<std::unique_ptr<Sink>> sinks;
    sinks.push_back(std::make_unique<JsonLinesSink>(t.run_.metrics(), 0));
    t.metrics_ = std::make_unique<Metrics>(recipe.log, std::move(sinks));
    some(std::max(kWarmUp, 2 * recipe.log.dataset_metrics_steps));
  }
  t.device_.synchronize();
  times.steps.clear();
  const Syncs before = t.engine_->syncs();
  t.engine_->restart_clock();
  const double waited = t.task_->waited(), host = t.host_seconds_, copies = feed_->copy_seconds();
  const auto began = std::chrono::steady_clock::now();
  some(steps);
  times.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  t.taken_ = nullptr;
  times.waited = t.task_->waited() - waited;
  times.host = t.host_seconds_ - host, times.copies = feed_->copy_seconds() - copies;
  times.tokens = steps * recipe.train.accumulate * t.task_->positions();
  times.peak_memory = t.device_.memory_stats().allocated_peak;
  times.syncs = t.engine_->syncs().since(before), times.graphs = t.engine_->graphs();
  return times;
}

}  // namespace tightloop
