#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// gate_up (rows, 2 F) dense -> y (rows, F).
struct SwigluForward {
  Dtype dtype;
  const void* gate_up;
  void* y;
  float* most;  // receives y's largest magnitude; may be null
  int64_t rows, F;
};
cudaError_t launch(const SwigluForward& call, cudaStream_t stream);

/// dy (rows, F) and gate_up (rows, 2 F) dense -> dgate_up (rows, 2 F).
struct SwigluBackward {
  Dtype dtype;
  const void *dy, *gate_up;
  void* dgate_up;
  float* most;  // receives dgate_up's largest magnitude; may be null
  int64_t rows, F;
};
cudaError_t launch(const SwigluBackward& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
