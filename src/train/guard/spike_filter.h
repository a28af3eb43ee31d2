#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace tightloop {

/// Tells the loss of a step that is far above those before it: above the median of the last kWindow by so
/// many robust standard deviations (kNormal times the median distance from the median, or kLeast of the
/// median where losses hardly differ). Losses that are not finite do not count. A spike does not enter the
/// window, so it raises no limit; after kNewLevel losses above the limit in a row they do, as the level has
/// changed. Nothing is a spike before kWarmUp losses.
class SpikeFilter {
 public:
  static constexpr int64_t kWindow = 128, kWarmUp = 32, kNewLevel = 16;
  static constexpr double kNormal = 1.4826, kLeast = 0.01;

  explicit SpikeFilter(double deviations) : deviations_(deviations) {}

  struct Spike {
    double loss = 0, limit = 0, median = 0;
  };
  /// The next loss.
  std::optional<Spike> judge(double loss);

  /// All that it knows, for checkpoints: fp64 (kWindow + 2), the losses (infinite where there are none yet),
  /// how many were taken, and how many in a row were above the limit.
  at::Tensor state() const;
  void load(const at::Tensor& state);

 private:
  const double deviations_;
  std::vector<double> window_;  // a ring
  int64_t taken_ = 0, above_ = 0;
};

/// The same on the device, where an update can be left out because of it: a step that is captured in a graph
/// judges its own loss, nothing waits, and processes that add their losses up first come to the same result.
class DeviceSpikeFilter {
 public:
  DeviceSpikeFilter(at::Device device, double deviations);

  /// Judges the next loss, a scalar on the device. commit() takes it into the window, once the step is done.
  void judge(const at::Tensor& loss);
  void commit();
  /// Of the loss judged last, scalars: whether it is a spike (bool), and the limit (fp64).
  const at::Tensor& spike() const { return spike_; }
  const at::Tensor& limit() const { return limit_; }

  /// As of SpikeFilter, the tensor itself.
  const at::Tensor& state() const { return state_; }
  void load(const at::Tensor& state) { state_.copy_(state); }

 private:
  const double deviations_;
  at::Tensor state_, numbers_;  // numbers_: 0 to kWindow - 1
  at::Tensor next_, spike_, limit_;
};

}  // namespace tightloop
