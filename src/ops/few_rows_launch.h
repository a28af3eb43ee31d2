#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

constexpr int kMostFewRows = 16;

/// y (N, O) = x (N, I) times the transposed weight (O, I) + bias (O). All dense and aligned to 16 bytes, as
/// are the rows: I is a multiple of 8, or of 4 in fp32. N up to kMostFewRows.
struct FewRows {
  Dtype dtype;
  const void* x;
  const void* weight;
  const void* bias;  // null: none
  void* y;
  int64_t N, I, O;
};

cudaError_t launch(const FewRows& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
