#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tightloop::ops {

/// Whether few_rows_linear takes this product of ops::linear: without gradients, of few enough rows that the
/// time goes into reading the weight. The bounds are in few_rows.cpp.
bool few_rows_take(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

/// The same for operators that make the product's rows of x themselves, in its kernel
/// (ops/decode/normed_linear.h, swiglu_linear.h): fewer and shorter rows, of 16 bits. x (..., any
/// length).
bool few_made_rows_take(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

/// x (..., in) times the transposed weight (out, in), plus the bias, at the speed at which the weight is
/// read. Sums are fp32 and rounded once, and are added in an order that depends on `in` alone: a row has the
/// same bits whatever rows stand beside it. The plain twin is at::linear. No gradient.
at::Tensor few_rows_linear(const at::Tensor& x, const at::Tensor& weight,
                           const std::optional<at::Tensor>& bias);

}  // namespace tightloop::ops
