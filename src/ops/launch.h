#pragma once

// What the kernels' launchers have in common. Only the CUDA plug-in includes this: no torch here, so that a
// .cu compiles in seconds.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tightloop::ops::cuda {

enum class Dtype { kFloat32, kBfloat16, kFloat16 };

}  // namespace tightloop::ops::cuda
