#pragma once

#include <ATen/core/Tensor.h>

namespace tightloop::ops {

/// gelu(linear(x, weight, bias)) in gelu's tanh form. On a GPU in 16 bits the product applies bias and gelu
/// before it writes its result, and what gelu was taken of beside it: a pass over the widest activations
/// less.
at::Tensor gelu_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// The same from linear and activation.
at::Tensor gelu_linear_plain(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace tightloop::ops
