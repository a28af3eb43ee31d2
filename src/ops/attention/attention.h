#pragma once

#include <ATen/core/Tensor.h>

#include "ops/pointwise/dropout.h"

namespace tightloop::ops {

/// Which keys a query sees.
struct KeyMask {
  /// (B) int64: a batch sees its first lengths[b] keys, at least one. Undefined: all keys.
  at::Tensor lengths{};
  /// Query i sees the keys [0, i] alone.
  bool causal = false;
  /// length_bias() of the lengths, where it was made ahead.
  at::Tensor bias{};
};

/// Softmax of queries (B, T, H, size) times keys (B, S, H, size) / sqrt(size), times values like the keys.
/// Gives (B, T, H, size). `drop` falls on the weights, (B, H, T, S).
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const KeyMask& mask = {},
                     const Dropout& drop = {});

/// The same of queries, keys and values that one product made, (B, T, 3, H, size), or of keys and values that
/// one made, (B, S, 2, H, size). On a GPU, in 16 bits and with heads of 32, 64 or 128, it is one kernel that
/// knows lengths and dropout; no mask and no weights are in memory.
at::Tensor self_attention(const at::Tensor& qkv, const KeyMask& mask = {}, const Dropout& drop = {});
at::Tensor cross_attention(const at::Tensor& q, const at::Tensor& kv, const KeyMask& mask = {},
                           const Dropout& drop = {});

/// Step by step in ordinary ATen.
at::Tensor attention_plain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const KeyMask& mask,
                           const Dropout& drop);

/// (B, 1, 1, S): what hides the keys behind `lengths` when it is added to scores.
at::Tensor length_bias(const at::Tensor& lengths, int64_t S, at::ScalarType dtype);

}  // namespace tightloop::ops
