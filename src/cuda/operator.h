#pragma once

// What the operators' CUDA registrations share.

#include <ATen/core/Tensor.h>

#include <optional>

#include "cuda/launching.h"
#include "ops/launch.h"
#include "ops/pointwise/dropout.h"

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

inline ops::cuda::Drop drop_of(double p, const std::optional<at::Tensor>& random, int64_t site) {
  if (p == 0) return {};
  return {random->const_data_ptr<int64_t>(), site, ops::dropout_threshold(p),
          static_cast<float>(1 / (1 - p))};
}

/// x, or a copy of it that begins where wide accesses may.
inline at::Tensor aligned(const at::Tensor& x) {
  return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0 ? x : x.clone();
}

/// x as kernels walk over it: dense, and beginning where wide accesses may.
inline at::Tensor dense(const at::Tensor& x) { return aligned(x.contiguous()); }
inline at::Tensor dense(const std::optional<at::Tensor>& x) { return x ? dense(*x) : at::Tensor(); }

/// Where a tensor is; nothing where there is none.
inline const void* data_of(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }
inline const void* data_of(const std::optional<at::Tensor>& x) { return x ? data_of(*x) : nullptr; }
inline void* mutable_data_of(const at::Tensor& x) { return x.defined() ? x.mutable_data_ptr() : nullptr; }
inline float* floats_of(const at::Tensor& x) { return x.defined() ? x.mutable_data_ptr<float>() : nullptr; }

}  // namespace tightloop::cuda
