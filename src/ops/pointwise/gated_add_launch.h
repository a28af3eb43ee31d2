#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// y = x + scale sigmoid(open) extra. extra, y (rows, K, S) dense; rows of x are `stride` elements apart, its
/// heads follow one another; open (rows, K). S in whole 16 bytes, at most 32 of them.
struct GatedAddForward {
  Dtype dtype;
  const void *x, *open, *extra;
  void* y;
  int64_t rows, K, S, stride;
  float scale;
};
cudaError_t launch(const GatedAddForward& call, cudaStream_t stream);

struct GatedAddBackward {
  Dtype dtype;
  const void *dy, *open, *extra;
  void *dopen, *dextra;
  int64_t rows, K, S;
  float scale;
};
cudaError_t launch(const GatedAddBackward& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
