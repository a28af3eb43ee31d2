#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tightloop::ops {

/// x (..., in) times the transposed weight (out, in), plus the bias (out) where there is one. Every product
/// of a model with a weight goes through here: whoever computes products otherwise (another precision, a
/// fused epilogue) does it in this one place. The head of
/// a training that has its loss fused (ops/loss/fused_head.h) multiplies there. Experts, whose weights are
/// stacks, have their grouped products beside them.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias = {});

}  // namespace tightloop::ops
