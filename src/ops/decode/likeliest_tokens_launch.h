#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

constexpr int kMostLikeliest = 128;  // tokens of a row that can be asked for

/// ops::likeliest_tokens.
struct LikeliestTokens {
  Dtype dtype;
  const void* logits;               // (rows, V), rows `stride` elements apart
  const bool* forbidden = nullptr;  // (V); null: none
  const int64_t* only = nullptr;    // (rows); null: no row has one
  int64_t* ids = nullptr;           // (rows, count)
  float* log_p = nullptr;           // (rows, count)
  int64_t rows = 0, V = 0, stride = 0, count = 0;
};

cudaError_t launch(const LikeliestTokens& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
