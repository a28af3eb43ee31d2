#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tightloop::ops {

constexpr int64_t kIgnoreIndex = -100;

/// What stands between logits and loss besides the softmax.
struct LossOptions {
  double softcap = 0;          // logits are first squashed to cap * tanh(logits / cap); 0: not
  double label_smoothing = 0;  // this share of the target's weight is spread evenly over the vocabulary
  double z_loss = 0;           // adds this much of log(sum exp logits)^2, which keeps logits from drifting
};

/// Losses are summed here and divided once per optimizer step by the global count.
struct LossSum {
  at::Tensor sum;     // fp32 scalar (fp64 for fp64 logits), differentiable
  at::Tensor count;   // int64 scalar: the targets that counted
  at::Tensor losses;  // (N), the parts of the sum, 0 where ignored; no gradient
};

/// -log softmax(logits)[target], summed over rows; logits (N, V), targets int64 (N), rows with kIgnoreIndex
/// left out. Targets outside [0, V) are an error on the CPU. Computed in fp32 whatever the logits' dtype;
/// all results stay on the logits' device (no sync).
LossSum cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const LossOptions& options = {});

/// The same in ordinary ATen.
LossSum cross_entropy_plain(const at::Tensor& logits, const at::Tensor& targets,
                            const LossOptions& options = {});

/// The losses alone, outside of autograd. Where `gradient` is given, that of their sum is written there; it
/// may be `logits` itself.
at::Tensor cross_entropy_rows(const at::Tensor& logits, const at::Tensor& targets,
                              const std::optional<at::Tensor>& gradient, const LossOptions& options);

/// Their sum; on the CPU in row order and fp64, so that threads do not change it.
at::Tensor sum_of_losses(const at::Tensor& losses);

}  // namespace tightloop::ops
