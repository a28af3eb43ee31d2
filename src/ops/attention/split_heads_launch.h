#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// Heads (batch, length, some, size), their last dimension dense; the strides in elements, like the start
/// multiples of 16 bytes. Without data: zeros.
struct StridedHeads {
  const void* data = nullptr;
  int64_t stride_batch = 0, stride_length = 0, stride_head = 0;
};

/// What both directions know. Half a head is a multiple of 16 bytes and has at most 32 of them. cos, sin
/// (positions, size / 2) and the weights (size) are dense and aligned to 16 bytes. qkv is read where heads
/// are normed and in the forward pass.
struct SplitHeadsCall {
  Dtype dtype;
  const float *cos, *sin;
  int64_t batch, length, heads, kv_heads, size, offset;
  bool normed;
  float eps;
  const void *q_weight, *k_weight;  // both or neither
  bool float_weight;
  StridedHeads qkv;
  const int32_t* positions = nullptr;  // of each row in place of offset + its place; below 0 counts as 0
};

/// q (batch, length, heads, size) and k (batch, length, kv_heads, size), dense.
struct SplitHeadsForward {
  SplitHeadsCall call;
  void *q, *k;
};
cudaError_t launch(const SplitHeadsForward& call, cudaStream_t stream);

/// dqkv (batch, length, heads + 2 kv_heads, size), dense. With weights partial (split_heads_parts(positions),
/// 2 size) is scratch.
struct SplitHeadsBackward {
  SplitHeadsCall call;
  StridedHeads dq, dk, dv;
  void *dqkv, *dq_weight, *dk_weight;
  float* most;  // receives dqkv's largest magnitude; may be null
  float* partial;
};
int split_heads_parts(int64_t positions);
cudaError_t launch(const SplitHeadsBackward& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
