#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dist/processes.h"
#include "train/engine/loss_buffer.h"

namespace tightloop {

/// A process that the others wait for.
struct Straggler {
  int rank = 0;
  double seconds = 0, usual = 0;  // of its own work in a step; the median of the others
};

/// Which processes have been slow for a while, by what a step takes each of them outside of collectives.
class StragglerJudge {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr double kSlow = 2;  // times the median of the others
  static constexpr std::chrono::seconds kWhile{5};
  static constexpr std::chrono::minutes kApart{5};  // between two words about the same one

  /// `paces`: seconds a step, by rank; 0: not known yet. Those to be named now.
  std::vector<Straggler> judge(const std::vector<double>& paces, Clock::time_point now);

 private:
  struct Record {
    bool slow = false, named = false;
    Clock::time_point since{}, last_named{};
  };
  std::vector<Record> records_;
};

/// Tells the other processes how long this one's own work on a step takes, and names stragglers in the log of
/// the main one. Nothing of it waits for anybody.
class StragglerWatch {
 public:
  using Clock = StragglerJudge::Clock;
  using Named = std::function<void(const std::string& text)>;
  /// `named` is called in the main process alone.
  StragglerWatch(Processes& processes, Named named) : processes_(processes), named_(std::move(named)) {}
  /// A step's times; `waited`: seconds that this process has waited for data so far.
  void step(const StepSums& sums, double waited) { step(sums, waited, Clock::now()); }
  void step(const StepSums& sums, double waited, Clock::time_point now);

 private:
  static constexpr std::chrono::seconds kTell{1};

  Processes& processes_;
  const Named named_;
  StragglerJudge judge_;
  Clock::time_point told_ = Clock::now();
  double seconds_ = 0, waited_ = 0;
  int64_t steps_ = 0;
};

}  // namespace tightloop
