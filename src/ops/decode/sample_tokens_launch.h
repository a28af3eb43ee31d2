#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

constexpr int kSampleChunk = 4096;       // scores that a block takes
constexpr int kSampleBins = 2048;        // of the scores' leading bits
constexpr int kSampleCandidates = 4096;  // of the likeliest tokens, kept aside

/// What the blocks of a row leave for each other. All zero before the launch.
struct SampleState {
  unsigned long long best;  // the largest rank
  uint32_t raw_best;        // the largest key before penalties
  uint32_t done;            // blocks
  uint32_t candidates;
  uint32_t unused;
  uint32_t bins[kSampleBins];  // how many scores have these leading bits
};

/// ops::sample_tokens. Columns of `values` and `numbers` as SampleSettings has them.
struct SampleTokens {
  Dtype dtype;
  const void* logits;              // (rows, V), rows `stride` elements apart
  const double* values;            // (rows, 4)
  const int64_t* numbers;          // (rows, 6)
  bool* seen = nullptr;            // (lines, V); null: no penalties
  SampleState* states = nullptr;   // (rows)
  uint64_t* sums = nullptr;        // (rows, chunks): of weights
  float* raw_sums = nullptr;       // (rows, chunks): of the plain softmax; null without logprobs
  uint64_t* candidates = nullptr;  // (rows, kSampleCandidates): ranks
  int64_t* ids = nullptr;          // (rows)
  float* logprobs = nullptr;       // (rows); null: nobody asks
  int64_t rows = 0, V = 0, stride = 0;

  int64_t chunks() const { return (V + kSampleChunk - 1) / kSampleChunk; }
};

cudaError_t launch(const SampleTokens& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
