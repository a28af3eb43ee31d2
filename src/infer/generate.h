#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/language_model.h"

namespace tightloop {

/// How the next token is chosen.
struct SamplingConfig {
  int64_t max_tokens = 128;
  double temperature = 0.8;  // 0: always the likeliest token
  int64_t top_k = 0;         // choose among this many likeliest tokens; 0: all
  double top_p = 1.0;        // choose among the likeliest tokens that make up this probability
  int64_t seed = 1337;       // the same seed gives the same text
};

/// Continues prompts of equal length (one a row) until each has made `stop_token` or max_tokens. The answers
/// hold neither the prompt nor the stop token. `on_token` sees every token as it is made: (row, id).
std::vector<std::vector<int32_t>> generate(LanguageModel& model,
                                           const std::vector<std::vector<int32_t>>& prompts,
                                           int32_t stop_token, const SamplingConfig& sampling,
                                           const std::function<void(size_t, int32_t)>& on_token = {});

/// One id for each row of scores (B, V). Temperature 0 takes the best. `draw` is a uniform number for each
/// row.
std::vector<int32_t> sample(const at::Tensor& logits_BV, const SamplingConfig& sampling,
                            std::span<const double> draws);

}  // namespace tightloop
