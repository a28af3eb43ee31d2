#pragma once

#include <ATen/core/Tensor.h>

#include "ops/dropout.h"

namespace tightloop::ops {

struct NormedSum {
  at::Tensor sum, normed;
};

/// What stands between two parts of a transformer: sum = x + dropout(y + y_bias), where y is what a part's
/// last product made of x, and normed = LayerNorm(sum) * weight + bias for the part that follows. x, y (...,
/// D). Statistics are taken of the sum as it is rounded.
NormedSum residual_norm(const at::Tensor& x, const at::Tensor& y, const at::Tensor& y_bias,
                        const at::Tensor& weight, const at::Tensor& bias, double eps,
                        const Dropout& drop = {});

/// The same in ordinary ATen.
NormedSum residual_norm_plain(const at::Tensor& x, const at::Tensor& y, const at::Tensor& y_bias,
                              const at::Tensor& weight, const at::Tensor& bias, double eps,
                              const Dropout& drop = {});

}  // namespace tightloop::ops
