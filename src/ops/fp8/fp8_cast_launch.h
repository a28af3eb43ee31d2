#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// most = max(most, |x|) over `count` elements, dense.
struct AbsoluteMax {
  Dtype dtype;
  const void* x;
  int64_t count;
  float* most;  // starts as 0
};
cudaError_t launch(const AbsoluteMax& call, cudaStream_t stream);

/// x (rows, columns) dense -> the same in fp8, and its transpose (columns, rows); either may be null.
struct Fp8Cast {
  Dtype dtype;
  bool e5m2;
  const void* x;
  int64_t rows, columns;  // multiples of 16
  const float* most;
  uint8_t *by_rows, *by_columns;
  float* scale;
};
cudaError_t launch(const Fp8Cast& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
