#pragma once

#include <ATen/core/Tensor.h>

namespace tightloop::ops {

/// linear(gelu(linear(x, up, up_bias)), down), gelu in its tanh form. On a GPU in 16 bits the first product
/// applies bias and gelu before it writes its result, with what gelu was taken of beside it, and backward's
/// product with `down` multiplies by gelu's slope: two passes over the widest activations less.
at::Tensor gelu_feed_forward(const at::Tensor& x, const at::Tensor& up, const at::Tensor& up_bias,
                             const at::Tensor& down);

/// The same from linear and activation.
at::Tensor gelu_feed_forward_plain(const at::Tensor& x, const at::Tensor& up, const at::Tensor& up_bias,
                                   const at::Tensor& down);

}  // namespace tightloop::ops
