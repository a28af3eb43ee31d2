#include <algorithm>
#include <chrono>

#include "core/interrupt.h"
#include "train/precision.h"
#include "train/sinks.h"
#include "train/trainer.h"

namespace tightloop {

StepTimes Trainer::time_steps(int64_t steps) {
  constexpr int64_t kWarmUp = 4;  // graphs are captured the second time around
  constexpr int64_t kEndless = int64_t{1} << 40;
  recipe_.ops.apply();  // another trainer may have asked for something else
  apply_precision(recipe_.train);
  device_.use_pools(recipe_.train.pools);
  StepTimes times;
  taken_ = &times.steps;
  const auto some = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      throw_if_interrupted();
      step(done_ + 1, *timed_feed_);
      if (done_ % recipe_.train.logging_steps == 0) progress_->end_line();
      if (buffer_->full()) extract(/*all=*/recipe_.train.loss_extract_interval == 1);
      look_after_memory(done_);
    }
    extract(/*all=*/true);
  };
  if (!timed_feed_) {
    timed_feed_ = open_feed(kEndless);
    std::vector<std::unique_ptr<Sink>> sinks;
    sinks.push_back(std::make_unique<JsonLinesSink>(run_.metrics(), 0));
    metrics_ = std::make_unique<Metrics>(recipe_.log, std::move(sinks));
    some(std::max(kWarmUp, 2 * recipe_.log.dataset_metrics_steps));
  }
  device_.synchronize();
  times.steps.clear();
  const Syncs before = engine_->syncs();
  engine_->restart_clock();
  const double waited = task_->waited(), host = host_seconds_, copies = timed_feed_->copy_seconds();
  const auto began = std::chrono::steady_clock::now();
  some(steps);
  times.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  taken_ = nullptr;
  times.waited = task_->waited() - waited;
  times.host = host_seconds_ - host, times.copies = timed_feed_->copy_seconds() - copies;
  times.tokens = steps * recipe_.train.accumulate * task_->positions();
  times.peak_memory = device_.memory_stats().allocated_peak;
  times.syncs = engine_->syncs().since(before), times.graphs = engine_->graphs();
  return times;
}

}  // namespace tightloop
