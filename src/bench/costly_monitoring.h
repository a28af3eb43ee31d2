#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "bench/step_timer.h"

namespace tightloop {

/// Training that is watched the way one does it first, kept for comparison: torch's profiler around a step
/// whenever FLOPs are to be counted, labels and predictions read row by row for statistics, and a record of
/// all metrics for each step, written at once, as clients of dashboards do.
class CostlyMonitoring {
 public:
  static constexpr int64_t kProfiled = 50;  // steps from one that is profiled to the next

  /// `timer`'s trainer does the steps; records and traces go to `folder`.
  CostlyMonitoring(StepTimer& timer, const std::filesystem::path& folder);

  /// Milliseconds a step by the wall clock.
  double milliseconds(int64_t steps);

 private:
  void step();

  StepTimer& timer_;
  const std::filesystem::path trace_;
  std::ofstream records_;
  int64_t count_ = 0;
};

}  // namespace tightloop
