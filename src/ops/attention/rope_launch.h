#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// x (batch, length, heads, 2 * half) with these strides, its last dimension dense; y dense; cos, sin
/// (positions, half).
struct Rope {
  Dtype dtype;
  const void* x;
  const float *cos, *sin;
  void* y;
  int64_t batch, length, heads, half;
  int64_t stride_batch, stride_length, stride_head;  // of x, in elements
  int64_t offset;
  bool backwards;
  const int32_t* positions;  // of each row in place of the offset; may be null. Below 0 counts as 0
};
cudaError_t launch(const Rope& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
