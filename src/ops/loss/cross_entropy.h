#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tightloop::ops {

constexpr int64_t kIgnoreIndex = -100;

/// What stands between logits and loss besides the softmax, and what is wanted of it.
struct LossOptions {
  double softcap = 0;          // logits are first squashed to cap * tanh(logits / cap); 0: not
  double label_smoothing = 0;  // this share of the target's weight is spread evenly over the vocabulary
  double z_loss = 0;           // adds this much of log(sum exp logits)^2, which keeps logits from drifting
  at::Tensor scale{};    // fp32 scalar (or as sum) on the logits' device: objective = sum * scale; none: 1
  bool correct = false;  // tell where the largest logit is the target's
};

/// Losses are summed here and divided once per optimizer step by the global count.
struct LossSum {
  // sum * scale, differentiable. The gradient is made with the loss, scaled once and inside, so what flows
  // into the objective must be 1: call backward() on it, or on it plus other terms, but multiply by `scale`.
  // Checked on the CPU; on a GPU it would cost a sync.
  at::Tensor objective;
  at::Tensor sum;        // fp32 scalar (fp64 for fp64 logits), no gradient
  at::Tensor count;      // int64 scalar: the targets that counted
  at::Tensor losses;     // (N), the parts of the sum, 0 where ignored; no gradient
  at::Tensor correct{};  // (N) bool where asked for: no logit is above the target's, nor an earlier one equal
};

/// -log softmax(logits)[target], summed over rows; logits (N, V), targets int64 (N), rows with kIgnoreIndex
/// left out. A target outside [0, V) is an error on the CPU and NaN on a GPU. Computed in fp32 whatever the
/// logits' dtype; all results stay on the logits' device (no sync). Logits that nobody else holds, a
/// temporary or moved here, are overwritten by their gradient; others are left as they are.
LossSum cross_entropy(at::Tensor logits, const at::Tensor& targets, const LossOptions& options = {});

/// The same in ordinary ATen; any gradient may flow into its objective.
LossSum cross_entropy_plain(const at::Tensor& logits, const at::Tensor& targets,
                            const LossOptions& options = {});

/// Where a kernel writes to.
struct LossRows {
  at::Tensor losses;      // (N) fp32
  at::Tensor gradient{};  // as the logits, where wanted: of the sum times the scale; may be the logits
  at::Tensor correct{};   // (N) bool, where wanted
};

/// The kernel alone, outside of autograd: for logits that ops::has_kernel.
void cross_entropy_rows(const at::Tensor& logits, const at::Tensor& targets, const LossRows& to,
                        const LossOptions& options);

/// What a head has computed, outside of autograd: gradients are those of sum * scale, undefined where not
/// wanted.
struct ComputedLoss {
  at::Tensor losses, correct{}, d_input{}, d_weight{};
};

/// Adds the losses up (on the CPU in row order and fp64, so that threads do not change the sum) and ties the
/// gradients to `input` and `weight`.
LossSum finish_loss(const ComputedLoss& computed, const at::Tensor& targets, const LossOptions& options,
                    const at::Tensor& input, const std::optional<at::Tensor>& weight = {});

}  // namespace tightloop::ops
