#include "train/interval.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <numeric>

namespace tightloop {

Interval::Interval(at::Device device, const std::vector<std::string>& sources, double waited)
    : sources_(sources), source_tokens_(sources.size()), waited_before_(waited) {
  const auto options = at::TensorOptions(at::kDouble).device(device);
  loss_ = at::zeros({}, options);
  if (sources_.size() < 2) return;
  const auto count = static_cast<int64_t>(sources_.size());
  by_source_ = at::zeros({count}, options);
  numbers_ = at::arange(count, options.dtype(at::kLong)).unsqueeze(1);
}

void Interval::add(const Batch& batch) {
  tokens_ += batch.rows * batch.length;
  supervised_ += batch.supervised;
  if (sources_.size() < 2) return;
  for (int64_t row = 0; row < batch.rows; ++row) {
    const uint8_t* mask = batch.loss_mask + row * batch.length;
    source_tokens_[batch.sources[row]] += std::accumulate(mask, mask + batch.length, int64_t{0});
  }
}

void Interval::add(const DeviceBatch& batch, const BatchLoss& loss) {
  c10::NoGradGuard no_grad;
  ++passes_;
  loss_.add_(loss.sum.detach());
  if (by_source_.defined()) {
    const auto rows = loss.losses.view(batch.targets_BT.sizes()).sum(1, /*keepdim=*/false, at::kDouble);
    by_source_.add_(((numbers_ == batch.sources_B) * rows).sum(1));
  }
  if (loss.balance.defined()) {
    balance_ = balance_.defined() ? balance_ + loss.balance.detach() : loss.balance.detach();
  }
  if (loss.expert_loads_LE.defined()) {
    expert_loads_ = expert_loads_.defined() ? expert_loads_ + loss.expert_loads_LE : loss.expert_loads_LE;
  }
}

double Interval::wait_share(double waited) const {
  return std::max(0.0, waited - waited_before_) / seconds();
}

void Interval::report(IntervalReport& report, double waited) const {
  const double passes = static_cast<double>(std::max<int64_t>(1, passes_));
  report.loss = loss_.item<double>() / static_cast<double>(std::max<int64_t>(1, supervised_));
  if (grad_norm.defined()) report.grad_norm = grad_norm.item<double>();
  report.step_seconds = seconds() / static_cast<double>(std::max<int64_t>(1, steps_));
  report.tokens_per_second = static_cast<double>(tokens_) / seconds();
  report.data_wait_share = wait_share(waited);
  if (by_source_.defined()) {
    const auto sums = by_source_.cpu();
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (source_tokens_[i] == 0) continue;
      report.source_losses.emplace_back(
          sources_[i], sums[static_cast<int64_t>(i)].item<double>() / static_cast<double>(source_tokens_[i]));
    }
  }
  if (balance_.defined()) report.balance_loss = balance_.item<double>() / passes;
  if (expert_loads_.defined()) {
    const auto loads = (expert_loads_.to(at::kDouble) / passes).cpu().contiguous();
    for (int64_t layer = 0; layer < loads.size(0); ++layer) {
      const double* row = loads.const_data_ptr<double>() + layer * loads.size(1);
      report.expert_loads.emplace_back(row, row + loads.size(1));
    }
  }
}

}  // namespace tightloop
