#pragma once

#include <ATen/core/Tensor.h>

namespace tightloop::ops {

/// x + scale * sigmoid(open) * extra, with one gate for each head: x and extra (B, T, K, S), open (B, T, K).
/// x may be heads of a wider tensor; what comes out is dense. nanochat's value embeddings.
at::Tensor gated_add(const at::Tensor& x, const at::Tensor& open, const at::Tensor& extra, double scale);

/// The same in ordinary ATen.
at::Tensor gated_add_plain(const at::Tensor& x, const at::Tensor& open, const at::Tensor& extra,
                           double scale);

}  // namespace tightloop::ops
