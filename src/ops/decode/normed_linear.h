#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tightloop::ops {

struct NormedProduct {
  at::Tensor sum, product;
};

/// sum = x + branch, and product = linear(rms_norm(sum, norm_weight, eps), weight, bias). The branch may be
/// undefined: then the sum is x. So may the norm's weight: 1.
/// Decoding up to 4 tokens on a GPU, both are one kernel: in 16 bits, without gradients. Sum and normed rows
/// are rounded as the operators' own are and sums over a row are added in the same order, so that these are
/// the bits of add_rms_norm (or rms_norm) and linear one after the other, which all else takes.
NormedProduct normed_linear(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& norm_weight,
                            double eps, const at::Tensor& weight, const std::optional<at::Tensor>& bias = {});

/// The same in ordinary ATen.
NormedProduct normed_linear_plain(const at::Tensor& x, const at::Tensor& branch,
                                  const at::Tensor& norm_weight, double eps, const at::Tensor& weight,
                                  const std::optional<at::Tensor>& bias = {});

}  // namespace tightloop::ops
