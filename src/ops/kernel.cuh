#pragma once

// What the kernels share: vector loads and stores that convert to and from fp32, sums over a row's threads.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ops/device.cuh"
#include "ops/launch.h"

namespace tightloop::ops::cuda {

__device__ inline float to_float(float v) { return v; }
__device__ inline float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ inline float to_float(__half v) { return __half2float(v); }

template <class T>
__device__ T from_float(float v);
template <>
__device__ inline float from_float<float>(float v) {
  return v;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float v) {
  return __float2bfloat16_rn(v);
}
template <>
__device__ inline __half from_float<__half>(float v) {
  return __float2half_rn(v);
}

/// To a few units in the last place. Not for tanh(x) = 2 sigmoid(2x) - 1 near 0, where digits cancel.
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

/// To 3e-7 of 1, which is fewer digits near 0, at half the price of tanhf.
__device__ inline float coarse_tanh(float x) { return 1.0f - __fdividef(2.0f, 1.0f + __expf(2 * x)); }

/// Elements that move together: one 16-byte access, or several.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Pack {
  T at[kCount];
};

template <int kCount, class T>
__device__ inline void load(const T* from, float (&values)[kCount]) {
  const auto pack = *reinterpret_cast<const Pack<T, kCount>*>(from);
#pragma unroll
  for (int k = 0; k < kCount; ++k) values[k] = to_float(pack.at[k]);
}

/// 16 bytes as they are, for loads that are started before their values are wanted.
template <class T>
__device__ inline uint4 load_raw(const T* from) {
  return *reinterpret_cast<const uint4*>(from);
}
template <class T, int kCount>
__device__ inline void unpack(const uint4& raw, float (&values)[kCount]) {
  static_assert(kCount * sizeof(T) == 16);
  load(reinterpret_cast<const T*>(&raw), values);
}

template <int kCount, class T>
__device__ inline void store(T* to, const float (&values)[kCount]) {
  Pack<T, kCount> pack;
#pragma unroll
  for (int k = 0; k < kCount; ++k) pack.at[k] = from_float<T>(values[k]);
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

/// One value of the kThreads threads of a row, joined by `join` in a fixed order and given to each of them.
/// kThreads is 32 (a warp) or the whole block, whose threads must then all call it; `warps` is shared memory
/// for kThreads / 32 floats.
template <int kThreads, class Join>
__device__ inline float row_join(float value, float* warps, Join join) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value = join(value, __shfl_xor_sync(0xffffffffu, value, distance));
  if constexpr (kThreads > 32) {
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = warps[0];
#pragma unroll
    for (int warp = 1; warp < kThreads / 32; ++warp) value = join(value, warps[warp]);
    __syncthreads();  // before the next call writes
  }
  return value;
}

template <int kThreads>
__device__ inline float row_sum(float value, float* warps) {
  return row_join<kThreads>(value, warps, [](float a, float b) { return a + b; });
}

template <int kThreads>
__device__ inline float row_max(float value, float* warps) {
  return row_join<kThreads>(value, warps, [](float a, float b) { return fmaxf(a, b); });
}

/// The largest magnitude of what a kernel stores as T, found in passing (ops/fp8/largest.h); NaN does not
/// count. Nothing happens where there is no `most`.
template <class T>
class Largest {
 public:
  __device__ explicit Largest(float* most) : most_(most) {}

  template <int kCount>
  __device__ void see(const float (&values)[kCount]) {
    if (!most_) return;
#pragma unroll
    for (int k = 0; k < kCount; ++k) seen_ = fmaxf(seen_, fabsf(values[k]));
  }
  /// Once, by all threads of a warp. Most find the number raised already and leave it alone.
  __device__ void leave() const {
    if (!most_) return;
    const float seen = to_float(from_float<T>(row_max<32>(seen_, nullptr)));
    if ((threadIdx.y * blockDim.x + threadIdx.x) % 32 != 0) return;
    if (seen > *static_cast<volatile float*>(most_))
      atomicMax(reinterpret_cast<int*>(most_), __float_as_int(seen));  // of floats above 0 alike
  }

 private:
  float* most_;
  float seen_ = 0;
};

/// Elements of T in 16 bytes.
template <class T>
constexpr int kWide = 16 / sizeof(T);

inline bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

/// body(T{}) with the C++ type of a dtype.
template <class Body>
cudaError_t with_type(Dtype dtype, Body&& body) {
  switch (dtype) {
    case Dtype::kFloat32:
      return body(float{});
    case Dtype::kBfloat16:
      return body(__nv_bfloat16{});
    case Dtype::kFloat16:
      return body(__half{});
  }
  return cudaErrorInvalidValue;
}

inline int round_up(int64_t value, int multiple) {
  return static_cast<int>((value + multiple - 1) / multiple * multiple);
}

}  // namespace tightloop::ops::cuda
