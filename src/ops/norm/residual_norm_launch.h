#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// All (rows, D) dense and aligned to 16 bytes like the vectors (D), in one dtype; a row has at most 16 KB;
/// mean and scale (rows) receive each row's mean and 1 / deviation. Without y, x is normed, and sum not
/// written.
struct ResidualNormForward {
  Dtype dtype;
  const void *x, *y, *y_bias, *weight, *bias;
  void *sum, *normed;
  float *mean, *scale;
  float* most;  // receives normed's largest magnitude; may be null
  int64_t rows, D;
  float eps;
  Drop drop;  // of y, (rows, D)
};
cudaError_t launch(const ResidualNormForward& call, cudaStream_t stream);

/// dsum or dnormed may be absent: 0. dx and dy may be the same where nothing is dropped; without y there is
/// no dy_bias. partial (residual_norm_parts(rows), 3 D) is scratch.
struct ResidualNormBackward {
  Dtype dtype;
  const void *dsum, *dnormed, *sum, *weight;
  const float *mean, *scale;
  void *dx, *dy, *dy_bias, *dweight, *dbias;
  float* most;  // receives dy's largest magnitude; may be null
  float* partial;
  int64_t rows, D;
  Drop drop;
};
int residual_norm_parts(int64_t rows);
cudaError_t launch(const ResidualNormBackward& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
