#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace tightloop::ops {

/// Whether backward keeps a product's input anyway, for the operator that made it: then a product that would
/// keep it in another form keeps it as it is.
enum class Input { kOwn, kKept };

/// x (..., in) times the transposed weight (out, in), plus the bias (out) where there is one. Products of a
/// model with a weight go through here, so that whoever computes them otherwise (another precision, another
/// library) does it in one place. Four multiply themselves: the head of a training that has its loss fused
/// (ops/loss/fused_head.h), gelu between two products (ops/pointwise/gelu_feed_forward.h), experts, whose
/// weights are stacks, and what makes the few rows of a product itself (few_made_rows_take, ops/few_rows.h).
/// On a CPU for which torch has no products in 16 bits (without AVX-512: it goes element by element, 5 to 60
/// times as slow), the factors are widened to fp32 and the product is rounded.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias = {},
                  Input input = Input::kOwn);

/// Whether torch has good matrix products of this dtype for this CPU.
bool has_products(at::ScalarType dtype);

}  // namespace tightloop::ops
