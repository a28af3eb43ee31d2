#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tightloop::ops {

/// What the next token of each row is chosen by, on the device of the scores, so that nothing has to be known
/// on the host. A row of zeros chooses the likeliest of all tokens.
struct SampleSettings {
  /// fp64 (N, 4).
  enum Value { kTemperature, kTopP, kMinP, kPenalty, kValues };
  /// int64 (N, 6).
  enum Number {
    kTopK,       // 0: all
    kSeed,       // the draw is a function of these three:
    kSample,     //   which of several answers to the prompt,
    kPosition,   //   and the token's place in the answer
    kVocabSize,  // ids below this may be chosen; 0: all
    kSeenLine,   // the row's line of `seen`
    kNumbers
  };
  at::Tensor values;
  at::Tensor numbers;
  /// bool (lines, V): tokens that a penalty lessens. Rows with a penalty mark there what they choose.
  /// Undefined: no row has a penalty.
  at::Tensor seen{};
};

struct SampledTokens {
  at::Tensor ids;       // int64 (N)
  at::Tensor logprobs;  // fp32 (N): of these, in the plain softmax over the allowed tokens; undefined unless
                        // asked for
};

/// One token for each row of scores (N, V), V up to 2^19. The same scores and settings choose the same token
/// on the CPU and on a GPU, whatever else is in the batch:
///
/// 1. NaN counts as -inf. Where there is a penalty p, scores s of tokens seen become s / p, or s p below 0.
/// 2. Temperature 0: the likeliest token, of equals the one with the lowest id. Without a likeliest (all are
///    -inf) all count as equal, here and below.
/// 3. The weight of a token is e^((s - best) / temperature) in units of 2^-44, cut off: an integer, so that
///    sums do not depend on their order.
/// 4. top_k keeps that many of the likeliest tokens; top_p the fewest of the likeliest that are left whose
///    weights come to that fraction of theirs (1: all); min_p those with at least that weight. Of equal
///    scores, lower ids come first.
/// 5. Ids in ascending order, the first at which the sum of the weights kept is above draw x their total.
///
/// No gradient. On a GPU the host waits for nothing and the call may be captured.
SampledTokens sample_tokens(const at::Tensor& logits_NV, const SampleSettings& settings,
                            bool logprobs = false);
/// The same row by row, sorted by what the likeliest are.
SampledTokens sample_tokens_plain(const at::Tensor& logits_NV, const SampleSettings& settings,
                                  bool logprobs = false);

}  // namespace tightloop::ops
