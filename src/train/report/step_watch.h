#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "core/terminal/progress_line.h"

namespace tightloop {

/// How steps go, as far as the host knows.
struct StepPace {
  int64_t step = 0, total = 0;  // the one under way; of the run
  int64_t timed = 0;            // steps of this process that have ended
  double seconds = 0;           // that those took
  double under_way = 0;         // that this one takes already
  double since_start = 0;       // of the run, by the clock
  bool first = true;            // no line of the log was shown yet
  bool queued = false;          // steps end on a device, some time after the host has started them
};

/// "step 3/1000  first steps, 2.1 s a step, about 35m00s left".
std::string pace_text(const StepPace& pace);

/// Speaks where a run would be silent: before the first line of the log, in steps that take long, and after
/// Ctrl-C. For people only: what a run keeps of itself never depends on the time.
class StepWatch {
 public:
  /// `queued`: see StepPace. `several`: processes agree on the step they stop after.
  StepWatch(int64_t total_steps, bool queued, bool several, bool speaks);
  /// Around each step; not around saving or evaluating, which have lines of their own.
  void begin(int64_t step);
  /// `logged`: the log has had a line.
  void end(bool logged);

 private:
  using Clock = std::chrono::steady_clock;
  void look();

  const bool several_, speaks_;
  std::mutex mutex_;
  StepPace pace_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point began_ = start_;
  bool under_way_ = false, spoke_ = false, drawn_ = false, told_of_stop_ = false;
  Ticker ticker_;  // last: its thread uses all of the above
};

}  // namespace tightloop
