#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// x and y (count) dense.
struct Dropout {
  Dtype dtype;
  const void* x;
  void* y;
  int64_t count;
  Drop drop;
};
cudaError_t launch(const Dropout& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
