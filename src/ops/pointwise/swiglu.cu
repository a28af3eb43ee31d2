#include <algorithm>
#include <climits>

#include "ops/kernel.cuh"
#include "ops/pointwise/swiglu_launch.h"

namespace tightloop::ops::cuda {

namespace {

// A block takes one row.
template <class T, int kVec>
__global__ void swiglu_forward_kernel(const T* gate_up, T* y, float* most, int F) {
  Largest<T> largest(most);
  const int64_t row = blockIdx.x;
  const T *gate = gate_up + row * 2 * F, *up = gate + F;
  for (int i = threadIdx.x * kVec; i < F; i += blockDim.x * kVec) {
    float g[kVec], u[kVec];
    load(gate + i, g);
    load(up + i, u);
#pragma unroll
    for (int k = 0; k < kVec; ++k) g[k] = g[k] * sigmoid(g[k]) * u[k];
    largest.see(g);
    store(y + row * F + i, g);
  }
  largest.leave();
}

template <class T, int kVec>
__global__ void swiglu_backward_kernel(const T* dy, const T* gate_up, T* dgate_up, float* most, int F) {
  Largest<T> largest(most);
  const int64_t row = blockIdx.x;
  const T *gate = gate_up + row * 2 * F, *up = gate + F;
  T *dgate = dgate_up + row * 2 * F, *dup = dgate + F;
  for (int i = threadIdx.x * kVec; i < F; i += blockDim.x * kVec) {
    float d[kVec], g[kVec], u[kVec];
    load(dy + row * F + i, d);
    load(gate + i, g);
    load(up + i, u);
#pragma unroll
    for (int k = 0; k < kVec; ++k) {
      const float s = sigmoid(g[k]), slope = s * (1.0f + g[k] * (1.0f - s));
      g[k] = g[k] * s * d[k];
      u[k] = u[k] * slope * d[k];
    }
    largest.see(g);
    largest.see(u);
    store(dup + i, g);
    store(dgate + i, u);
  }
  largest.leave();
}

int threads_for(int64_t F, int vec) { return std::min(256, round_up((F + vec - 1) / vec, 32)); }

}  // namespace

cudaError_t launch(const SwigluForward& c, cudaStream_t stream) {
  if (c.rows == 0 || c.F == 0) return cudaSuccess;
  if (c.rows > INT_MAX || c.F > INT_MAX / 2) return cudaErrorInvalidValue;
  return with_type(c.dtype, [&]<class T>(T) {
    constexpr int kVec = kWide<T>;
    const auto* from = static_cast<const T*>(c.gate_up);
    auto* to = static_cast<T*>(c.y);
    const auto rows = static_cast<unsigned>(c.rows);
    const int F = static_cast<int>(c.F);
    const bool wide = F % kVec == 0 && aligned(from) && aligned(to);
    return start(wide ? swiglu_forward_kernel<T, kVec> : swiglu_forward_kernel<T, 1>, rows,
                 threads_for(F, wide ? kVec : 1), 0, stream, from, to, c.most, F);
  });
}

cudaError_t launch(const SwigluBackward& c, cudaStream_t stream) {
  if (c.rows == 0 || c.F == 0) return cudaSuccess;
  if (c.rows > INT_MAX || c.F > INT_MAX / 2) return cudaErrorInvalidValue;
  return with_type(c.dtype, [&]<class T>(T) {
    constexpr int kVec = kWide<T>;
    const auto *dy = static_cast<const T*>(c.dy), *from = static_cast<const T*>(c.gate_up);
    auto* to = static_cast<T*>(c.dgate_up);
    const auto rows = static_cast<unsigned>(c.rows);
    const int F = static_cast<int>(c.F);
    const bool wide = F % kVec == 0 && aligned(dy) && aligned(from) && aligned(to);
    return start(wide ? swiglu_backward_kernel<T, kVec> : swiglu_backward_kernel<T, 1>, rows,
                 threads_for(F, wide ? kVec : 1), 0, stream, dy, from, to, c.most, F);
  });
}

}  // namespace tightloop::ops::cuda
