#include "train/guard/spike_filter.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tightloop {

namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

/// The lower one where there are two.
double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() - 1) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

std::optional<SpikeFilter::Spike> SpikeFilter::judge(double loss) {
  if (!std::isfinite(loss)) return {};
  double limit = kNone, median = 0;
  if (taken_ >= kWarmUp) {
    median = lower_median(window_);
    std::vector<double> apart;
    for (const double other : window_) apart.push_back(std::fabs(other - median));
    limit = median + deviations_ * std::max(kNormal * lower_median(apart), kLeast * std::fabs(median));
  }
  above_ = loss > limit ? above_ + 1 : 0;
  if (above_ > 0 && above_ <= kNewLevel) return Spike{loss, limit, median};
  if (taken_ < kWindow)
    window_.push_back(loss);
  else
    window_[taken_ % kWindow] = loss;
  ++taken_;
  return {};
}

at::Tensor SpikeFilter::state() const {
  at::Tensor state = at::full({kWindow + 2}, kNone, at::kDouble);
  auto* values = state.mutable_data_ptr<double>();
  std::ranges::copy(window_, values);
  values[kWindow] = static_cast<double>(taken_), values[kWindow + 1] = static_cast<double>(above_);
  return state;
}

void SpikeFilter::load(const at::Tensor& state) {
  const at::Tensor given = state.to(at::kCPU, at::kDouble).contiguous();
  const double* values = given.const_data_ptr<double>();
  taken_ = static_cast<int64_t>(values[kWindow]), above_ = static_cast<int64_t>(values[kWindow + 1]);
  window_.assign(values, values + std::min(taken_, kWindow));
}

DeviceSpikeFilter::DeviceSpikeFilter(at::Device device, double deviations) : deviations_(deviations) {
  const auto options = at::TensorOptions(at::kDouble).device(device);
  state_ = SpikeFilter(deviations).state().to(device);
  numbers_ = at::arange(SpikeFilter::kWindow, options);
}

void DeviceSpikeFilter::judge(const at::Tensor& loss) {
  c10::NoGradGuard no_grad;
  constexpr int64_t kWindow = SpikeFilter::kWindow;
  const at::Tensor window = state_.narrow(0, 0, kWindow), taken = state_[kWindow],
                   above_before = state_[kWindow + 1];
  // What is not there yet is infinite and comes last.
  const auto middle = ((taken.clamp(1, kWindow) - 1) / 2).floor().to(at::kLong).view({1});
  const auto lower_median = [&](const at::Tensor& values) {
    return std::get<0>(values.sort()).index_select(0, middle)[0];
  };
  const auto median = lower_median(window);
  const auto spread = (lower_median((window - median).abs()) * SpikeFilter::kNormal)
                          .maximum(median.abs() * SpikeFilter::kLeast);
  const auto none = at::full({}, kNone, window.options());
  limit_ = at::where(taken >= SpikeFilter::kWarmUp, median + spread * deviations_, none);
  const auto finite = at::isfinite(loss);
  const auto above = at::where(finite, (above_before + 1) * (loss > limit_).to(at::kDouble), above_before);
  spike_ = finite.logical_and(above > 0).logical_and(above <= SpikeFilter::kNewLevel);
  const auto takes = finite.logical_and(spike_.logical_not());
  const auto here = (numbers_ == taken.remainder(kWindow)).logical_and(takes);
  next_ = at::cat({at::where(here, loss, window), at::stack({taken + takes.to(at::kDouble), above})});
}

void DeviceSpikeFilter::commit() {
  c10::NoGradGuard no_grad;
  state_.copy_(next_);
}

}  // namespace tightloop
