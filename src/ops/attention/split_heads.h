#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace tightloop::ops {

/// RMS norm of queries and keys over each head. Weights (S) in the heads' dtype or in fp32, both or neither.
struct HeadNorm {
  double eps;
  at::Tensor q_weight, k_weight;
};

struct SplitHeads {
  at::Tensor q, k, v;
};

/// What stands between the product that makes queries, keys and values and attention. Of qkv (B, T, H + 2 K,
/// S) the first H heads are queries, then come K keys and K values. Queries and keys are normed where `norm`
/// says so, then turned as ops::rope turns them (tables fp32 (positions, S / 2), no gradient; the first row
/// stands at position `offset`, or each at its own in `positions`, as ops::rope has them). q (B, T, H, S) and
/// k (B, T, K, S) are dense, rounded once on a GPU; v (B, T, K, S) is qkv's own memory.
SplitHeads split_heads(const at::Tensor& qkv, int64_t heads, const at::Tensor& cos, const at::Tensor& sin,
                       int64_t offset = 0, const std::optional<HeadNorm>& norm = {},
                       const at::Tensor& positions = {});

/// The same in ordinary ATen.
SplitHeads split_heads_plain(const at::Tensor& qkv, int64_t heads, const at::Tensor& cos,
                             const at::Tensor& sin, int64_t offset = 0,
                             const std::optional<HeadNorm>& norm = {}, const at::Tensor& positions = {});

}  // namespace tightloop::ops
