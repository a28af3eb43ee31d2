#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tightloop::ops {

constexpr int64_t kIgnoreIndex = -100;

/// Losses are summed here and divided once per optimizer step by the global count.
struct LossSum {
  at::Tensor sum;    // fp32 scalar (fp64 for fp64 logits), differentiable
  at::Tensor count;  // int64 scalar: the targets that counted
};

/// -log softmax(logits)[target], summed over rows; logits (N, V), targets int64 (N), rows with kIgnoreIndex
/// left out. Targets outside [0, V) are an error on the CPU. Computed in fp32 whatever the logits' dtype;
/// both results stay on the logits' device (no sync).
LossSum cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

/// The same in ordinary ATen.
LossSum cross_entropy_plain(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace tightloop::ops
