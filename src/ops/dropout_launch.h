#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// y = x * scale where the element's random word is at least `threshold`, else 0. x and y (count) dense;
/// `random` is read on the device.
struct Dropout {
  Dtype dtype;
  const void* x;
  void* y;
  const int64_t* random;
  int64_t site, count;
  uint32_t threshold;
  float scale;
};
cudaError_t launch(const Dropout& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
