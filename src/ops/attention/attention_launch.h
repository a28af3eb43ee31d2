#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// Rows of H heads each: head h of row t of batch b starts at data + b * batch + t * row + h * head.
template <class Pointer>
struct Heads {
  Pointer data;
  int64_t batch, row;  // in elements; rows start at multiples of 16 bytes
};

/// bf16 or fp16; head size 32, 64 or 128. T queries and S keys in each of B batches; batch b sees its first
/// lengths[b] keys (all of them without `lengths`), and query i no key behind the i-th where it is `causal`.
struct AttentionShape {
  Dtype dtype;
  int64_t B, H, T, S, head;
  float scale;  // of the scores
  bool causal;
  const int64_t* lengths;
  Drop drop;  // of the weights, (B, H, T, S)
};

/// y (B, T, H, head) dense, lse (B, H, T): the logarithm of the sum of exp(score).
struct AttentionForward {
  AttentionShape shape;
  Heads<const void*> q, k, v;
  void* y;
  float* lse;
};
cudaError_t launch(const AttentionForward& call, cudaStream_t stream);

/// dy and y like y above. Sums run over fixed tiles in order: the same bits on every run.
struct AttentionBackward {
  AttentionShape shape;
  Heads<const void*> q, k, v;
  const void *y, *dy;
  const float* lse;
  Heads<void*> dq, dk, dv;
};
cudaError_t launch(const AttentionBackward& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
