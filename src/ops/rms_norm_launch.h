#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// x, y (rows, D) dense; weight (D) in x's dtype or fp32; scale (rows) receives 1/rms.
struct RmsNormForward {
  Dtype dtype;
  bool float_weight;
  const void *x, *weight;
  void* y;
  float* scale;
  int64_t rows, D;
  float eps;
};
cudaError_t launch(const RmsNormForward& call, cudaStream_t stream);

/// partial (rms_norm_parts(rows, D), D) is scratch for the sums over rows. Which rows a part sums depends on
/// the shape alone, and parts are added in order: the result has the same bits on every run and GPU.
struct RmsNormBackward {
  Dtype dtype;
  bool float_weight;
  const void *dy, *x, *weight;
  const float* scale;
  void *dx, *dweight;
  float* partial;
  int64_t rows, D;
};
int rms_norm_parts(int64_t rows, int64_t D);
cudaError_t launch(const RmsNormBackward& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
