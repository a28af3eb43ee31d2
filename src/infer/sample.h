#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tightloop {

/// How the next token is chosen. The cuts apply in this order: penalty, temperature, top_k, top_p, min_p.
struct SamplingConfig {
  int64_t max_tokens = 128;
  double temperature = 0.8;         // 0: always the likeliest token
  int64_t top_k = 0;                // choose among this many likeliest tokens; 0: all
  double top_p = 1.0;               // choose among the likeliest tokens that make up this probability
  double min_p = 0.0;               // leave out tokens less likely than this share of the likeliest one
  double repetition_penalty = 1.0;  // scores of tokens seen already are divided by it (times it where < 0)
  int64_t seed = 1337;              // the same seed gives the same text
};

/// What the next token of one row is chosen by.
struct SampleRow {
  const SamplingConfig* sampling;
  std::span<const int32_t> seen{};  // the row's tokens so far (prompt and answer), read for the penalty
  uint64_t sample = 0;              // which of several answers to the prompt,
  uint64_t position = 0;   // and the token's place in it: the draw is a function of these and the seed
  int64_t vocab_size = 0;  // ids below this may be chosen; 0: all
};

/// One id for each row of scores (B, V), by ops::sample_tokens on their device: only the ids leave it.
std::vector<int32_t> sample(const at::Tensor& logits_BV, std::span<const SampleRow> rows);

/// Log probabilities of the plain softmax over the first vocab_size (0: all) of a row of scores (V): of one
/// id, and of the likeliest, largest first.
struct LogProbabilities {
  float chosen = 0;
  std::vector<std::pair<int32_t, float>> likeliest{};
};
LogProbabilities log_probabilities(const at::Tensor& logits_V, int32_t chosen, int64_t vocab_size,
                                   int64_t likeliest);

}  // namespace tightloop
