#pragma once

#include <ATen/core/Tensor.h>

namespace tightloop::ops {

/// y = x / sqrt(mean(x^2) + eps) * weight over the last dimension; x (..., D), weight (D).
/// y has x's dtype; the weight may have the same dtype or fp32. Sums and the scale are fp32, y is rounded
/// once.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// The same in ordinary ATen: what the kernels must agree with.
at::Tensor rms_norm_plain(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace tightloop::ops
