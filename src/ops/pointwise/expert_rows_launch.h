#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// spread[place[n, p]] = x[n], times weights[n, p] where there are any; dots[n, p] = x[n] rows[place[n, p]]
/// where there are rows. x (N, D), place and weights (N, P), spread and rows (N P, D), all dense; D in whole
/// 16 bytes.
struct SpreadRows {
  Dtype dtype;
  const void* x;
  const int64_t* place;
  const float* weights;
  const void* rows;
  void* spread;
  float* dots;
  int64_t N, P, D;
};
cudaError_t launch(const SpreadRows& call, cudaStream_t stream);

/// y[n] = sum over p of rows[place[n, p]], times weights[n, p] where there are any, in the order of p.
struct GatherRows {
  Dtype dtype;
  const void* rows;
  const int64_t* place;
  const float* weights;
  void* y;
  int64_t N, P, D;
};
cudaError_t launch(const GatherRows& call, cudaStream_t stream);

/// Sets the `bytes` (a multiple of 16) of each expert to 0 whose rows end where those before it do.
struct ClearIdle {
  void* matrices;
  const int* ends;
  int64_t experts, bytes;
};
cudaError_t launch(const ClearIdle& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
