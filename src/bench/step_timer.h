#pragma once

#include <vector>

#include "train/engine/step_engine.h"
#include "train/trainer.h"

namespace tightloop {

/// What timing some steps gave.
struct StepTimes {
  std::vector<StepSums> steps;  // with the device's seconds, part by part
  double seconds = 0;           // by the wall clock, all steps
  double waited = 0;            // of these, for data
  double host = 0;              // that the host took to start them
  double copies = 0;            // of the device, beside its other work
  int64_t tokens = 0;
  int64_t peak_memory = 0;  // since the trainer was made: captured steps allocate only once
  Syncs syncs;              // within the steps
  GraphCounts graphs;
};

/// Times training steps of a trainer that does not run() otherwise.
///
///     StepTimer timer(trainer);
///     const StepTimes times = timer.time(20);
class StepTimer {
 public:
  explicit StepTimer(Trainer& trainer) : trainer_(trainer) {}

  /// Times `steps` steps, logged as always but neither evaluated nor saved. The first call warms up with some
  /// more, later ones go on from there.
  StepTimes time(int64_t steps);
  /// Milliseconds a step by the wall clock.
  double milliseconds(int64_t steps) { return time(steps).seconds / static_cast<double>(steps) * 1e3; }
  Trainer& trainer() { return trainer_; }

 private:
  Trainer& trainer_;
  bool warm_ = false;
};

}  // namespace tightloop
