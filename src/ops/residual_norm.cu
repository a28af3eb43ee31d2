#include "ops/residual_norm_launch.h"

#include <algorithm>
#include <climits>

#include "ops/column_sums.cuh"
#include "ops/kernel.cuh"
#include "ops/philox.cuh"

namespace tightloop::ops::cuda {

namespace {

// A row is held in registers: short ones by a warp, several of which share a block, long ones by a block. A
// thread has up to kMostChunks times 16 bytes of it.
constexpr int kWarpRows = 4, kBlockThreads = 256, kMostChunks = 4, kMostParts = 264;

/// This thread's elements of a row: body(chunk, index of its first element).
template <int kVec, int kThreads, int kChunks, class Body>
__device__ inline void for_chunks(int D, Body&& body) {
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int i = (chunk * kThreads + threadIdx.x) * kVec;
    if (i < D) body(chunk, i);
  }
}

template <class T, int kThreads, int kRows, int kChunks>
__global__ void __launch_bounds__(kThreads* kRows) residual_norm_forward_kernel(const ResidualNormForward c) {
  constexpr int kVec = kWide<T>;
  __shared__ float warps[kThreads / 32];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y;
  if (row >= c.rows) return;  // whole warps, or the whole block
  const int D = static_cast<int>(c.D);
  const int64_t start = row * D;
  const Dropper drop(c.drop);
  float v[kChunks][kVec] = {}, total = 0;
  for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int i) {
    float branch[kVec], y_bias[kVec];
    load(static_cast<const T*>(c.x) + start + i, v[chunk]);
    load(static_cast<const T*>(c.y) + start + i, branch);
    load(static_cast<const T*>(c.y_bias) + i, y_bias);
#pragma unroll
    for (int k = 0; k < kVec; ++k) branch[k] += y_bias[k];
    if (c.drop.random) drop.apply(start + i, branch);
#pragma unroll
    for (int k = 0; k < kVec; ++k) {
      v[chunk][k] = to_float(from_float<T>(v[chunk][k] + branch[k]));  // what the backward pass will read
      total += v[chunk][k];
    }
    store(static_cast<T*>(c.sum) + start + i, v[chunk]);
  });
  const float mean = row_sum<kThreads>(total, warps) / static_cast<float>(D);
  float squares = 0;
  for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int) {
#pragma unroll
    for (int k = 0; k < kVec; ++k) squares += (v[chunk][k] - mean) * (v[chunk][k] - mean);
  });
  const float scale = 1.0f / sqrtf(row_sum<kThreads>(squares, warps) / static_cast<float>(D) + c.eps);
  for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int i) {
    float weight[kVec], bias[kVec];
    load(static_cast<const T*>(c.weight) + i, weight);
    load(static_cast<const T*>(c.bias) + i, bias);
#pragma unroll
    for (int k = 0; k < kVec; ++k) v[chunk][k] = (v[chunk][k] - mean) * scale * weight[k] + bias[k];
    store(static_cast<T*>(c.normed) + start + i, v[chunk]);
  });
  if (threadIdx.x == 0) c.mean[row] = mean, c.scale[row] = scale;
}

/// Adds what the rows of a block have summed up, in order, and leaves it as a part of one.
template <int kVec, int kThreads, int kRows, int kChunks>
__device__ void leave(const float (&sums)[kChunks][kVec], float* shared, float* part, int D) {
  for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int i) {
#pragma unroll
    for (int k = 0; k < kVec; ++k) shared[threadIdx.y * D + i + k] = sums[chunk][k];
  });
  __syncthreads();
  for (int i = threadIdx.y * kThreads + threadIdx.x; i < D; i += kThreads * kRows) {
    float total = 0;
#pragma unroll
    for (int row = 0; row < kRows; ++row) total += shared[row * D + i];
    part[i] = total;
  }
  __syncthreads();
}

template <class T, int kThreads, int kRows, int kChunks>
__global__ void __launch_bounds__(kThreads* kRows)
    residual_norm_backward_kernel(const ResidualNormBackward c) {
  constexpr int kVec = kWide<T>;
  __shared__ float warps[kThreads / 32];
  const int D = static_cast<int>(c.D);
  const Dropper drop(c.drop);
  float dweight[kChunks][kVec] = {}, dbias[kChunks][kVec] = {}, dy_bias[kChunks][kVec] = {};
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRows;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y; row < c.rows; row += stride) {
    const int64_t start = row * D;
    const float mean = c.mean[row], scale = c.scale[row];
    float v[kChunks][kVec] = {}, g[kChunks][kVec] = {}, sum = 0, dot = 0;
    if (c.dnormed) {
      for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int i) {
        float weight[kVec];
        load(static_cast<const T*>(c.sum) + start + i, v[chunk]);
        load(static_cast<const T*>(c.dnormed) + start + i, g[chunk]);
        load(static_cast<const T*>(c.weight) + i, weight);
#pragma unroll
        for (int k = 0; k < kVec; ++k) {
          v[chunk][k] = (v[chunk][k] - mean) * scale;
          dweight[chunk][k] += g[chunk][k] * v[chunk][k];
          dbias[chunk][k] += g[chunk][k];
          g[chunk][k] *= weight[k];
          sum += g[chunk][k];
          dot += g[chunk][k] * v[chunk][k];
        }
      });
      sum = row_sum<kThreads>(sum, warps) / static_cast<float>(D);
      dot = row_sum<kThreads>(dot, warps) / static_cast<float>(D);
    }
    for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int i) {
      float d[kVec] = {};
      if (c.dsum) load(static_cast<const T*>(c.dsum) + start + i, d);
#pragma unroll
      for (int k = 0; k < kVec; ++k) d[k] += scale * (g[chunk][k] - sum - v[chunk][k] * dot);
      store(static_cast<T*>(c.dx) + start + i, d);
      if (c.drop.random) {
        drop.apply(start + i, d);
        store(static_cast<T*>(c.dy) + start + i, d);
      }
#pragma unroll
      for (int k = 0; k < kVec; ++k) dy_bias[chunk][k] += d[k];
    });
  }
  auto* shared = reinterpret_cast<float*>(dynamic_shared());
  float* part = c.partial + static_cast<int64_t>(blockIdx.x) * 3 * D;
  leave<kVec, kThreads, kRows, kChunks>(dy_bias, shared, part, D);
  leave<kVec, kThreads, kRows, kChunks>(dweight, shared, part + D, D);
  leave<kVec, kThreads, kRows, kChunks>(dbias, shared, part + 2 * D, D);
}

/// run(T{}, integral constants of the threads for a row, of the rows of a block, of the chunks of a thread)
template <class Call, class Run>
cudaError_t with_shape(const Call& c, Run&& run) {
  if (c.rows > INT_MAX) return cudaErrorInvalidValue;
  return with_type(c.dtype, [&]<class T>(T) {
    if (c.D > kBlockThreads * kMostChunks * kWide<T>) return cudaErrorInvalidValue;
    const auto with_chunks = [&]<class Threads, class Rows>(Threads threads, Rows rows) {
      const int64_t each = Threads::value * kWide<T>;
      switch ((c.D + each - 1) / each) {
        case 1:
          return run(T{}, threads, rows, std::integral_constant<int, 1>{});
        case 2:
          return run(T{}, threads, rows, std::integral_constant<int, 2>{});
        case 3:
          return run(T{}, threads, rows, std::integral_constant<int, 3>{});
        default:
          return run(T{}, threads, rows, std::integral_constant<int, kMostChunks>{});
      }
    };
    if (c.D <= 32 * kMostChunks * kWide<T>)
      return with_chunks(std::integral_constant<int, 32>{}, std::integral_constant<int, kWarpRows>{});
    return with_chunks(std::integral_constant<int, kBlockThreads>{}, std::integral_constant<int, 1>{});
  });
}

}  // namespace

cudaError_t launch(const ResidualNormForward& c, cudaStream_t stream) {
  if (c.rows == 0 || c.D == 0) return cudaSuccess;
  return with_shape(c, [&]<class T, class Threads, class Rows, class Chunks>(T, Threads, Rows, Chunks) {
    const auto blocks = static_cast<unsigned>((c.rows + Rows::value - 1) / Rows::value);
    return start(residual_norm_forward_kernel<T, Threads::value, Rows::value, Chunks::value>, blocks,
                 dim3(Threads::value, Rows::value), 0, stream, c);
  });
}

int residual_norm_parts(int64_t rows) {
  return static_cast<int>(std::clamp<int64_t>((rows + kWarpRows - 1) / kWarpRows, 1, kMostParts));
}

cudaError_t launch(const ResidualNormBackward& c, cudaStream_t stream) {
  if (c.D == 0) return cudaSuccess;
  const int parts = residual_norm_parts(c.rows), D = static_cast<int>(c.D);
  return with_shape(c, [&]<class T, class Threads, class Rows, class Chunks>(T, Threads, Rows, Chunks) {
    const auto status =
        start(residual_norm_backward_kernel<T, Threads::value, Rows::value, Chunks::value>, parts,
              dim3(Threads::value, Rows::value), Rows::value * D * sizeof(float), stream, c);
    if (status != cudaSuccess) return status;
    return finish_sums<T, 3>(c.partial, parts, {{c.dy_bias, c.dweight, c.dbias}, D}, stream);
  });
}

}  // namespace tightloop::ops::cuda
