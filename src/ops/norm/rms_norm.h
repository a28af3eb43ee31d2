#pragma once

#include "ops/norm/normed_sum.h"

namespace tightloop::ops {

/// y = x / sqrt(mean(x^2) + eps) * weight over the last dimension; x (..., D), weight (D) or undefined: 1.
/// y has x's dtype; the weight may have the same dtype or fp32. Sums and the scale are fp32, y is rounded
/// once. On a GPU rows of whole 16 bytes, 16 KB at most, have a kernel; others take the twin.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// The same in ordinary ATen: what the kernels must agree with.
at::Tensor rms_norm_plain(const at::Tensor& x, const at::Tensor& weight, double eps);

/// sum = x + y, rounded once, and normed = rms_norm(sum, weight, eps).
NormedSum add_rms_norm(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight, double eps);

/// The same in ordinary ATen.
NormedSum add_rms_norm_plain(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight, double eps);

/// Two numbers on the device, of one dtype, x's or fp32, which learn.
struct SumScales {
  at::Tensor x, y;
};

struct MixedSum {
  at::Tensor sum, normed;
  at::Tensor x;  // the same numbers: what reads x after this has its gradient added up in this one's pass
};

/// sum = x * scales.x + (y + branch) * scales.y, rounded once, and normed = rms_norm(sum, eps); the branch
/// may be undefined. Where x and y are one tensor, the gradient that x gets is added to its sum before y's.
/// Backward takes y + branch from the sum, so that nobody keeps it; a scale of y that is 0 gets no gradient.
MixedSum mix_rms_norm(const at::Tensor& x, const at::Tensor& y, const at::Tensor& branch, double eps,
                      const SumScales& scales);

/// The same in ordinary ATen.
MixedSum mix_rms_norm_plain(const at::Tensor& x, const at::Tensor& y, const at::Tensor& branch, double eps,
                            const SumScales& scales);

}  // namespace tightloop::ops
