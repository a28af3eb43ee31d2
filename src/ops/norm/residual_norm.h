#pragma once

#include "ops/norm/normed_sum.h"
#include "ops/pointwise/dropout.h"

namespace tightloop::ops {

/// sum = x + dropout(y + y_bias), where y is what a part's last product made, and normed = LayerNorm(sum) *
/// weight + bias for the part that follows. x, y (..., D). Statistics are taken of the sum as it is rounded.
NormedSum residual_norm(const at::Tensor& x, const at::Tensor& y, const at::Tensor& y_bias,
                        const at::Tensor& weight, const at::Tensor& bias, double eps,
                        const Dropout& drop = {});

/// The same in ordinary ATen.
NormedSum residual_norm_plain(const at::Tensor& x, const at::Tensor& y, const at::Tensor& y_bias,
                              const at::Tensor& weight, const at::Tensor& bias, double eps,
                              const Dropout& drop = {});

/// LayerNorm(x) * weight + bias by the same kernels, which sum up weight's and bias's gradients in passing.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);

}  // namespace tightloop::ops
