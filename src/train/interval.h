#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "data/batch.h"
#include "train/loss.h"
#include "train/metrics.h"

namespace tightloop {

/// What gathers between two log lines. Losses are sums on the device until report() reads them.
class Interval {
 public:
  using Clock = std::chrono::steady_clock;

  /// `sources` are names of the numbers in Batch::sources; `waited` the loader's seconds so far.
  Interval(at::Device device, const std::vector<std::string>& sources, double waited);

  /// Counts on the host.
  void add(const Batch& batch);
  /// Sums on the device.
  void add(const DeviceBatch& batch, const BatchLoss& loss);
  void end_step() { ++steps_; }

  int64_t steps() const { return steps_; }
  int64_t tokens() const { return tokens_; }
  int64_t supervised() const { return supervised_; }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double wait_share(double waited) const;
  /// Saving and evaluating are not the steps' time.
  void leave_out(Clock::duration pause) { start_ += pause; }

  /// Reads the sums (waits for the device) and fills in what they say.
  void report(IntervalReport& report, double waited) const;

  at::Tensor grad_norm;  // of the last step with a gradient

 private:
  std::vector<std::string> sources_;
  std::vector<int64_t> source_tokens_;
  at::Tensor loss_, by_source_, numbers_, balance_, expert_loads_;
  int64_t tokens_ = 0, supervised_ = 0, steps_ = 0, passes_ = 0;
  double waited_before_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace tightloop
