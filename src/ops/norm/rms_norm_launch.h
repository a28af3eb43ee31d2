#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// What scales a sum's two parts and its norm. Each may be absent: 1. The first two are single numbers.
struct RmsNormScales {
  const void *x, *y, *weight;      // weight (D)
  bool float_sides, float_weight;  // in fp32, rather than in the rows' dtype
};

/// normed = rms_norm(sum) * weight with sum = x * x_scale + (y + branch) * y_scale, or x where there is no y;
/// the branch may be absent. All (rows, D) dense and aligned to 16 bytes like the weight; a row has at most
/// 16 KB; scale (rows) receives 1/rms.
struct RmsNormForward {
  Dtype dtype;
  RmsNormScales scales;
  const void *x, *y, *branch;
  void *sum, *normed;
  float* scale;
  float* most;  // receives normed's largest magnitude; may be null
  int64_t rows, D;
  float eps;
};
cudaError_t launch(const RmsNormForward& call, cudaStream_t stream);

/// dsum or dnormed may be absent: 0. Of dx and dy, which are equal where the sides have no scales, only dx is
/// written there; dsides (2) and x are needed for scales alone, dweight for a weight. dx_before, which may be
/// absent, is what x's gradient is added to, with scales alone. partial
/// (rms_norm_parts(rows), D + 2) is scratch for the sums over rows. Which rows a part sums depends on the
/// shape alone, and parts are added in order: the result has the same bits on every run and GPU.
struct RmsNormBackward {
  Dtype dtype;
  RmsNormScales scales;
  const void *dsum, *dnormed, *sum, *x, *dx_before;
  const float* scale;
  void *dx, *dy, *dsides, *dweight;
  float* most;  // receives dy's largest magnitude; may be null
  float* partial;
  int64_t rows, D;
};
int rms_norm_parts(int64_t rows);
cudaError_t launch(const RmsNormBackward& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
