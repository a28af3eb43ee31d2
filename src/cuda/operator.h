#pragma once

// What the operators' CUDA registrations share.

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "ops/launch.h"

namespace tightloop::cuda {

inline ops::cuda::Dtype dtype_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return ops::cuda::Dtype::kFloat32;
    case at::kBFloat16:
      return ops::cuda::Dtype::kBfloat16;
    case at::kHalf:
      return ops::cuda::Dtype::kFloat16;
    default:
      TORCH_CHECK(false, "no CUDA kernel for ", x.scalar_type());
  }
}

/// Launches it on torch's current stream of the device that x is on; the caller holds a guard for it.
template <class Call>
void run(const Call& call) {
  C10_CUDA_CHECK(launch(call, c10::cuda::getCurrentCUDAStream().stream()));
}

}  // namespace tightloop::cuda
