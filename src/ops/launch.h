#pragma once

// What the kernels' launchers have in common. Only the CUDA plug-in includes this: no torch here, so that a
// .cu compiles in seconds.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tightloop::ops::cuda {

enum class Dtype { kFloat32, kBfloat16, kFloat16 };

/// Dropout that a kernel applies in passing (ops/pointwise/dropout.h): elements whose random word is below `threshold`
/// become 0, the others are multiplied by `scale`. Without `random` nothing is dropped.
struct Drop {
  const int64_t* random = nullptr;
  int64_t site = 0;
  uint32_t threshold = 0;
  float scale = 1;
};

}  // namespace tightloop::ops::cuda
