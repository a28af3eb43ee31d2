#pragma once

// The rows that few_rows.cu multiplies. Where they are made of others, each block makes them for itself, in
// shared memory, while its part of the weight is under way: that is less than a kernel before this one takes.
// A block reads 16 bytes of the weight for each column; for each row and column it reads 2 of x, and 2 more
// of a branch or of `up`, from the cache that all multiprocessors share.

#include "ops/few_rows_launch.h"
#include "ops/norm_weight.cuh"
#include "ops/rows.cuh"

namespace tightloop::ops::cuda {

template <class T>
struct GivenRows {
  const T* x;

  __device__ const T* rows(int, int) const { return x; }
};

/// silu(gate) * up, by blocks of kBlock threads.
template <class T, int kBlock>
struct SwigluRows {
  const T* gate_up;

  __device__ const T* rows(int N, int I) const {
    constexpr int kVec = kWide<T>;
    T* const made = reinterpret_cast<T*>(dynamic_shared());
    for (int n = 0; n < N; ++n) {
      const T *const gate = gate_up + int64_t{2} * n * I, *const up = gate + I;
      for (int i = threadIdx.x * kVec; i < I; i += kBlock * kVec) {
        float g[kVec], u[kVec];
        load(gate + i, g);
        load(up + i, u);
#pragma unroll
        for (int k = 0; k < kVec; ++k) g[k] = g[k] * sigmoid(g[k]) * u[k];
        store(made + n * I + i, g);
      }
    }
    __syncthreads();
    return made;
  }
};

/// rms_norm(x + branch) * weight. kThreads is that of a row in rms_norm.cu, in whose order squares are added.
template <class T, int kBlock, int kThreads>
struct NormedRows {
  const T *x, *branch;
  const void* weight;
  T* sum;
  bool float_weight;
  float eps;

  __device__ const T* rows(int N, int I) const {
    constexpr int kVec = kWide<T>;
    __shared__ float scales[kMostMadeRows];
    T* const made = reinterpret_cast<T*>(dynamic_shared());
    for (int i = threadIdx.x * kVec; i < N * I; i += kBlock * kVec) {
      float v[kVec];
      load(x + i, v);
      if (branch) {
        float more[kVec];
        load(branch + i, more);
#pragma unroll
        for (int k = 0; k < kVec; ++k) v[k] += more[k];
        if (blockIdx.x == 0) store(sum + i, v);
      }
      store(made + i, v);
    }
    __syncthreads();
    const int thread = threadIdx.x % kThreads;
    for (int begin = 0; begin < N; begin += kBlock / kThreads) {
      const int n = begin + static_cast<int>(threadIdx.x) / kThreads;
      float squares = 0;
      for (int i = thread * kVec; n < N && i < I; i += kThreads * kVec) {
        float v[kVec];
        load(made + n * I + i, v);
#pragma unroll
        for (int k = 0; k < kVec; ++k) squares += v[k] * v[k];
      }
      const float total = row_total(squares);
      if (thread == 0 && n < N) scales[n] = 1.0f / sqrtf(total / static_cast<float>(I) + eps);
    }
    __syncthreads();
    for (int i = threadIdx.x * kVec; i < I; i += kBlock * kVec) {
      float by[kVec];
      load_norm_weight<T>(weight, float_weight, i, by);
      for (int n = 0; n < N; ++n) {
        float v[kVec];
        load(made + n * I + i, v);
#pragma unroll
        for (int k = 0; k < kVec; ++k) v[k] *= scales[n] * by[k];
        store(made + n * I + i, v);
      }
    }
    __syncthreads();
    return made;
  }

 private:
  /// As row_sum, of several rows of a block at once.
  static __device__ float row_total(float value) {
    value = row_sum<32>(value, nullptr);
    if constexpr (kThreads > 32) {
      constexpr int kWarps = kThreads / 32;
      __shared__ float warps[kBlock / 32];
      if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
      __syncthreads();
      const float* const own = warps + threadIdx.x / kThreads * kWarps;
      value = own[0];
#pragma unroll
      for (int warp = 1; warp < kWarps; ++warp) value += own[warp];
      __syncthreads();  // before the next rows write
    }
    return value;
  }
};

}  // namespace tightloop::ops::cuda
