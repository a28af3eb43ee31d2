#include <torch/library.h>

#include <optional>

#include "cuda/operator.h"
#include "ops/loss/cross_entropy.h"
#include "ops/loss/cross_entropy_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

void cross_entropy_rows(const Tensor& logits_in, const Tensor& targets_in, const Tensor& losses,
                        const std::optional<Tensor>& gradient, const std::optional<Tensor>& correct,
                        const std::optional<Tensor>& scale, double softcap, double label_smoothing,
                        double z_loss) {
  const Guard guard(logits_in.device());
  const auto dense_rows = [](const Tensor& x) { return x.size(1) <= 1 || x.stride(1) == 1; };
  const Tensor logits = dense_rows(logits_in) ? logits_in : logits_in.contiguous();
  const Tensor targets = targets_in.contiguous();
  TORCH_CHECK(!gradient || dense_rows(*gradient), "cross_entropy: the gradient's rows must be dense");
  run(ops::cuda::CrossEntropyRows{.dtype = dtype_of(logits),
                                  .logits = logits.const_data_ptr(),
                                  .targets = targets.const_data_ptr<int64_t>(),
                                  .losses = losses.mutable_data_ptr<float>(),
                                  .gradient = gradient ? gradient->mutable_data_ptr() : nullptr,
                                  .correct = correct ? correct->mutable_data_ptr<bool>() : nullptr,
                                  .scale = scale ? scale->const_data_ptr<float>() : nullptr,
                                  .rows = logits.size(0),
                                  .V = logits.size(1),
                                  .stride = logits.stride(0),
                                  .gradient_stride = gradient ? gradient->stride(0) : 0,
                                  .ignored = ops::kIgnoreIndex,
                                  .softcap = static_cast<float>(softcap),
                                  .label_smoothing = static_cast<float>(label_smoothing),
                                  .z_loss = static_cast<float>(z_loss)});
}

TIGHTLOOP_KERNELS(m) { m.impl("cross_entropy", cross_entropy_rows); }

}  // namespace

}  // namespace tightloop::cuda
