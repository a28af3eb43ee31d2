#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// dweight (V, D) += the rows of dy (N, D) by id. ids (N) ascend, and positions (N) says which row of dy each
/// belongs to. dweight comes filled with zeros, and ids outside of it are passed over. dy and dweight dense
/// and aligned to 16 bytes, rows a multiple of that. partial (embedding_windows(N), 2, D) is scratch.
struct EmbeddingBackward {
  Dtype dtype;
  const void* dy;
  const int32_t* ids;
  const int64_t* positions;
  void* dweight;
  float* partial;
  int64_t N, D, V;
};
int64_t embedding_windows(int64_t N);
cudaError_t launch(const EmbeddingBackward& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
