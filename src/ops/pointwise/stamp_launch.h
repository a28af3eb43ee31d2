#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// part: -1 for none.
struct Lap {
  double* row;
  int64_t clock, part;
};
cudaError_t launch(const Lap& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
