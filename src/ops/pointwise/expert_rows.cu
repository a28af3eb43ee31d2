#include "ops/pointwise/expert_rows_launch.h"
#include "ops/rows.cuh"

namespace tightloop::ops::cuda {

namespace {

constexpr int kClearThreads = 256, kClearBlocks = 32;

template <class T, int kThreads, int kRows, int kChunks>
__global__ void __launch_bounds__(kThreads* kRows) spread_rows_kernel(const SpreadRows c) {
  constexpr int kVec = kWide<T>;
  __shared__ float warps[kThreads / 32];
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y;
  if (n >= c.N) return;  // whole warps, or the whole block
  const int D = static_cast<int>(c.D);
  float x[kChunks][kVec];
  for_chunks<kVec, kThreads, kChunks>(
      D, [&](int chunk, int i) { load(static_cast<const T*>(c.x) + n * D + i, x[chunk]); });
  for (int64_t choice = n * c.P; choice < (n + 1) * c.P; ++choice) {
    const int64_t start = c.place[choice] * D;
    const float weight = c.weights ? c.weights[choice] : 1;
    float dot = 0;
    for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int i) {
      float v[kVec];
      if (c.rows) {
        load(static_cast<const T*>(c.rows) + start + i, v);
#pragma unroll
        for (int k = 0; k < kVec; ++k) dot += x[chunk][k] * v[k];
      }
#pragma unroll
      for (int k = 0; k < kVec; ++k) v[k] = weight * x[chunk][k];
      store(static_cast<T*>(c.spread) + start + i, v);
    });
    if (!c.rows) continue;
    dot = row_sum<kThreads>(dot, warps);
    if (threadIdx.x == 0) c.dots[choice] = dot;
  }
}

template <class T, int kThreads, int kRows, int kChunks>
__global__ void __launch_bounds__(kThreads* kRows) gather_rows_kernel(const GatherRows c) {
  constexpr int kVec = kWide<T>;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y;
  if (n >= c.N) return;
  const int D = static_cast<int>(c.D);
  float sum[kChunks][kVec] = {};
  for (int64_t choice = n * c.P; choice < (n + 1) * c.P; ++choice) {
    const int64_t start = c.place[choice] * D;
    const float weight = c.weights ? c.weights[choice] : 1;
    for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int i) {
      float v[kVec];
      load(static_cast<const T*>(c.rows) + start + i, v);
#pragma unroll
      for (int k = 0; k < kVec; ++k) sum[chunk][k] += weight * v[k];
    });
  }
  for_chunks<kVec, kThreads, kChunks>(
      D, [&](int chunk, int i) { store(static_cast<T*>(c.y) + n * D + i, sum[chunk]); });
}

__global__ void __launch_bounds__(kClearThreads) clear_idle_kernel(const ClearIdle c) {
  const unsigned expert = blockIdx.y;
  if (c.ends[expert] != (expert > 0 ? c.ends[expert - 1] : 0)) return;
  const int64_t packs = c.bytes / 16;
  auto* to = static_cast<uint4*>(c.matrices) + expert * packs;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kClearThreads + threadIdx.x; i < packs;
       i += static_cast<int64_t>(gridDim.x) * kClearThreads)
    to[i] = uint4{};
}

}  // namespace

cudaError_t launch(const SpreadRows& c, cudaStream_t stream) {
  if (c.N == 0 || c.D == 0) return cudaSuccess;
  return with_rows(
      c.dtype, c.N, c.D, [&]<class T, class Threads, class Rows, class Chunks>(T, Threads, Rows, Chunks) {
        return start(spread_rows_kernel<T, Threads::value, Rows::value, Chunks::value>,
                     row_blocks(c.N, Rows::value), dim3(Threads::value, Rows::value), 0, stream, c);
      });
}

cudaError_t launch(const GatherRows& c, cudaStream_t stream) {
  if (c.N == 0 || c.D == 0) return cudaSuccess;
  return with_rows(
      c.dtype, c.N, c.D, [&]<class T, class Threads, class Rows, class Chunks>(T, Threads, Rows, Chunks) {
        return start(gather_rows_kernel<T, Threads::value, Rows::value, Chunks::value>,
                     row_blocks(c.N, Rows::value), dim3(Threads::value, Rows::value), 0, stream, c);
      });
}

cudaError_t launch(const ClearIdle& c, cudaStream_t stream) {
  if (c.experts == 0 || c.bytes == 0) return cudaSuccess;
  if (c.bytes % 16 != 0 || c.experts > 65535) return cudaErrorInvalidValue;
  return start(clear_idle_kernel, dim3(kClearBlocks, static_cast<unsigned>(c.experts)), kClearThreads, 0,
               stream, c);
}

}  // namespace tightloop::ops::cuda
