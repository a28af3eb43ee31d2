#pragma once

// Where kernels are registered and launched. tests/kernels/cpu has this file once more for the CPU.

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

/// TIGHTLOOP_KERNELS(m) { m.impl("name", function); }
#define TIGHTLOOP_KERNELS(m) TORCH_LIBRARY_IMPL(tightloop, CUDA, m)

namespace tightloop::cuda {

/// Makes a tensor's device the current one.
using Guard = c10::cuda::CUDAGuard;

/// Launches it on torch's current stream of the current device.
template <class Call>
void run(const Call& call) {
  C10_CUDA_CHECK(launch(call, c10::cuda::getCurrentCUDAStream().stream()));
}

}  // namespace tightloop::cuda
