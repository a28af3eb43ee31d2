#include "ops/norm/residual_norm_launch.h"

#include "ops/column_sums.cuh"
#include "ops/philox.cuh"
#include "ops/rows.cuh"

namespace tightloop::ops::cuda {

namespace {

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
    load(static_cast<const T*>(c.x) + start + i, v[chunk]);
    if (c.y) {
      float branch[kVec], y_bias[kVec];
      load(static_cast<const T*>(c.y) + start + i, branch);
      load(static_cast<const T*>(c.y_bias) + i, y_bias);
#pragma unroll
      for (int k = 0; k < kVec; ++k) branch[k] += y_bias[k];
      if (c.drop.random) drop.apply(start + i, branch);
#pragma unroll
      for (int k = 0; k < kVec; ++k)  // rounded, as the backward pass will read it
        v[chunk][k] = to_float(from_float<T>(v[chunk][k] + branch[k]));
      store(static_cast<T*>(c.sum) + start + i, v[chunk]);
    }
#pragma unroll
    for (int k = 0; k < kVec; ++k) total += v[chunk][k];
  });
  const float mean = row_sum<kThreads>(total, warps) / static_cast<float>(D);
  float squares = 0;
  for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int) {
#pragma unroll
    for (int k = 0; k < kVec; ++k) squares += (v[chunk][k] - mean) * (v[chunk][k] - mean);
  });
  const float scale = 1.0f / sqrtf(row_sum<kThreads>(squares, warps) / static_cast<float>(D) + c.eps);
  Largest<T> largest(c.most);
  for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int i) {
    float weight[kVec], bias[kVec];
    load(static_cast<const T*>(c.weight) + i, weight);
    load(static_cast<const T*>(c.bias) + i, bias);
#pragma unroll
    for (int k = 0; k < kVec; ++k) v[chunk][k] = (v[chunk][k] - mean) * scale * weight[k] + bias[k];
    largest.see(v[chunk]);
    store(static_cast<T*>(c.normed) + start + i, v[chunk]);
  });
  largest.leave();
  if (threadIdx.x == 0) c.mean[row] = mean, c.scale[row] = scale;
}

enum { kSum, kDnormed, kDsum, kRead };  // tensors that the backward pass reads row by row

template <class T, int kThreads, int kRows, int kChunks>
__global__ void __launch_bounds__(kThreads* kRows)
    residual_norm_backward_kernel(const ResidualNormBackward c) {
  constexpr int kVec = kWide<T>;
  __shared__ float warps[kThreads / 32];
  const int D = static_cast<int>(c.D);
  const Dropper drop(c.drop);
  float dweight[kChunks][kVec] = {}, dbias[kChunks][kVec] = {}, dy_bias[kChunks][kVec] = {};
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRows,
                first = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y;
  RowsAhead<T, kRead, kThreads, kRows, kChunks> ahead(
      dynamic_shared(), {c.dnormed ? c.sum : nullptr, c.dnormed, c.dsum}, c.rows, D);
  ahead.begin(first);
  Largest<T> largest(c.most);
  float next_mean = first < c.rows ? c.mean[first] : 0, next_scale = first < c.rows ? c.scale[first] : 0;
  for (int64_t row = first; row < c.rows; row += stride) {
    const int64_t start = row * D;
    ahead.step(row, row + stride);
    const float mean = next_mean, scale = next_scale;
    if (row + stride < c.rows) next_mean = c.mean[row + stride], next_scale = c.scale[row + stride];
    float v[kChunks][kVec] = {}, g[kChunks][kVec] = {}, sum = 0, dot = 0;
    if (c.dnormed) {
      for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int i) {
        float weight[kVec];
        ahead.load(kSum, chunk, v[chunk]);
        ahead.load(kDnormed, chunk, g[chunk]);
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
      if (c.dsum) ahead.load(kDsum, chunk, d);
#pragma unroll
      for (int k = 0; k < kVec; ++k) d[k] += scale * (g[chunk][k] - sum - v[chunk][k] * dot);
      store(static_cast<T*>(c.dx) + start + i, d);
      if (c.drop.random) {
        drop.apply(start + i, d);
        store(static_cast<T*>(c.dy) + start + i, d);
      }
      largest.see(d);
#pragma unroll
      for (int k = 0; k < kVec; ++k) dy_bias[chunk][k] += d[k];
    });
  }
  largest.leave();
  __syncthreads();  // all have read their rows
  auto* shared = reinterpret_cast<float*>(dynamic_shared());
  float* part = c.partial + static_cast<int64_t>(blockIdx.x) * 3 * D;
  if (c.dy_bias) leave_sums<kVec, kThreads, kRows, kChunks>(dy_bias, shared, part, D);
  leave_sums<kVec, kThreads, kRows, kChunks>(dweight, shared, part + D, D);
  leave_sums<kVec, kThreads, kRows, kChunks>(dbias, shared, part + 2 * D, D);
}

}  // namespace

cudaError_t launch(const ResidualNormForward& c, cudaStream_t stream) {
  if (c.rows == 0 || c.D == 0) return cudaSuccess;
  return with_rows<kForwardChunks>(
      c.dtype, c.rows, c.D, [&]<class T, class Threads, class Rows, class Chunks>(T, Threads, Rows, Chunks) {
        return start(residual_norm_forward_kernel<T, Threads::value, Rows::value, Chunks::value>,
                     row_blocks(c.rows, Rows::value), dim3(Threads::value, Rows::value), 0, stream, c);
      });
}

int residual_norm_parts(int64_t rows) { return row_parts(rows, 3); }

cudaError_t launch(const ResidualNormBackward& c, cudaStream_t stream) {
  if (c.D == 0) return cudaSuccess;
  const int parts = residual_norm_parts(c.rows), D = static_cast<int>(c.D);
  return with_rows(c.dtype, c.rows, c.D,
                   [&]<class T, class Threads, class Rows, class Chunks>(T, Threads, Rows, Chunks) {
                     const size_t shared =
                         std::max(Rows::value * D * sizeof(float),
                                  RowsAhead<T, kRead, Threads::value, Rows::value, Chunks::value>::kBytes);
                     const auto status =
                         start(residual_norm_backward_kernel<T, Threads::value, Rows::value, Chunks::value>,
                               parts, dim3(Threads::value, Rows::value), shared, stream, c);
                     if (status != cudaSuccess) return status;
                     return finish_sums<T, 3>(c.partial, parts, {{c.dy_bias, c.dweight, c.dbias}, D}, stream);
                   });
}

}  // namespace tightloop::ops::cuda
