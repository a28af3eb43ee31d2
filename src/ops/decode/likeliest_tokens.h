#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tightloop::ops {

/// What may be chosen, on the device of the scores.
struct TokenLimits {
  at::Tensor forbidden_V{};  // bool: these ids may not; undefined: all may
  at::Tensor only_N{};       // int64: where it is not below 0, this id alone may; undefined: nowhere
};

struct LikeliestTokens {
  at::Tensor ids;    // int64 (N, count)
  at::Tensor log_p;  // fp32 (N, count)
};

/// The `count` likeliest ids of each row of scores (N, V), the likeliest first and of equals the lowest id,
/// with their log probabilities in the plain softmax over all V. Where fewer may be chosen, the places left
/// have the id 0 and -inf. NaN counts as -inf; without a likeliest (all are -inf) all count as equal. V is at
/// most 2^19.
///
/// No gradient. On a GPU the host waits for nothing and the call may be captured.
LikeliestTokens likeliest_tokens(const at::Tensor& logits_NV, int64_t count, const TokenLimits& limits = {});
/// The same by sorting whole rows.
LikeliestTokens likeliest_tokens_plain(const at::Tensor& logits_NV, int64_t count,
                                       const TokenLimits& limits = {});

}  // namespace tightloop::ops
