#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
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

/// One id for each row of scores (B, V). `seen` holds each row's tokens so far (prompt and answer), read only
/// for the penalty; `draws` is a uniform number in [0, 1) for each row, read only where temperature is not 0.
std::vector<int32_t> sample(const at::Tensor& logits_BV, const SamplingConfig& sampling,
                            std::span<const std::vector<int32_t>> seen, std::span<const double> draws);

}  // namespace tightloop
