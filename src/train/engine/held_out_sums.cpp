#include "train/engine/held_out_sums.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "core/error.h"

namespace tightloop {

HeldOutSums::HeldOutSums(int64_t batches, at::Device device)
    : losses_(at::zeros({batches}, at::TensorOptions(at::kDouble).device(device))),
      correct_(at::zeros({batches}, at::TensorOptions(at::kLong).device(device))) {}

void HeldOutSums::add(int64_t batch, const at::Tensor& loss, const at::Tensor& correct, int64_t tokens,
                      int64_t bytes) {
  c10::NoGradGuard no_grad;
  losses_[batch].copy_(loss), correct_[batch].copy_(correct);
  tokens_ += tokens, bytes_ += bytes;
}

void HeldOutSums::gather(Processes& processes) {
  losses_ = losses_.cpu(), correct_ = correct_.cpu();
  const at::Tensor counts = at::zeros({2}, at::kLong);
  auto* count = counts.mutable_data_ptr<int64_t>();
  count[0] = tokens_, count[1] = bytes_;
  processes.sum_({losses_, correct_, counts});
  tokens_ = count[0], bytes_ = count[1];
}

HeldOutLoss HeldOutSums::total() const {
  if (tokens_ == 0)
    throw data_error("none of the held-out tokens is to be learned: the loss mask is all zero.");
  HeldOutLoss total{.tokens = tokens_, .bytes = bytes_};
  const at::Tensor losses = losses_.cpu(), correct = correct_.cpu();
  for (int64_t batch = 0; batch < losses.size(0); ++batch) {
    total.sum += losses.const_data_ptr<double>()[batch];
    total.correct += correct.const_data_ptr<int64_t>()[batch];
  }
  return total;
}

}  // namespace tightloop
