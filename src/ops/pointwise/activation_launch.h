#pragma once

#include "ops/launch.h"
#include "ops/pointwise/activation_kind.h"

namespace tightloop::ops::cuda {

/// y = dropout(act(x + bias)); x, y (rows, D) dense, bias (D) or absent, one dtype, aligned to 16 bytes, D a
/// multiple of 16 bytes.
struct ActivationForward {
  Dtype dtype;
  ActivationKind kind;
  const void *x, *bias;
  void* y;
  float* most;  // receives y's largest magnitude; may be null
  int64_t rows, D;
  Drop drop;  // of y, (rows, D)
};
cudaError_t launch(const ActivationForward& call, cudaStream_t stream);

/// partial (activation_parts(rows, D), D) is scratch; without a bias it is absent like dbias.
struct ActivationBackward {
  Dtype dtype;
  ActivationKind kind;
  const void *dy, *x, *bias;
  void *dx, *dbias;
  float* most;  // receives dx's largest magnitude; may be null
  float* partial;
  int64_t rows, D;
  Drop drop;
};
int activation_parts(int64_t rows, int64_t D);
cudaError_t launch(const ActivationBackward& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
