#include "ops/column_sums.cuh"
#include "ops/norm/rms_norm_launch.h"
#include "ops/norm_weight.cuh"
#include "ops/rows.cuh"

namespace tightloop::ops::cuda {

namespace {

/// A single number, in fp32 or in T; 1 where there is none.
template <class T>
__device__ inline float number(const void* at, bool wide) {
  if (!at) return 1;
  return wide ? *static_cast<const float*>(at) : to_float(*static_cast<const T*>(at));
}

template <class T, int kThreads, int kRows, int kChunks>
__global__ void __launch_bounds__(kThreads* kRows) rms_norm_forward_kernel(const RmsNormForward c) {
  constexpr int kVec = kWide<T>;
  __shared__ float warps[kThreads / 32];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y;
  if (row >= c.rows) return;  // whole warps, or the whole block
  const int D = static_cast<int>(c.D);
  const int64_t start = row * D;
  const float of_x = number<T>(c.scales.x, c.scales.float_sides),
              of_y = number<T>(c.scales.y, c.scales.float_sides);
  float v[kChunks][kVec] = {}, squares = 0;
  for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int i) {
    load(static_cast<const T*>(c.x) + start + i, v[chunk]);
    if (c.y) {
      float branch[kVec];
      load(static_cast<const T*>(c.y) + start + i, branch);
      if (c.branch) {
        float more[kVec];
        load(static_cast<const T*>(c.branch) + start + i, more);
#pragma unroll
        for (int k = 0; k < kVec; ++k) branch[k] += more[k];
      }
#pragma unroll
      for (int k = 0; k < kVec; ++k)  // rounded, as the backward pass will read it
        v[chunk][k] = to_float(from_float<T>(v[chunk][k] * of_x + branch[k] * of_y));
      store(static_cast<T*>(c.sum) + start + i, v[chunk]);
    }
#pragma unroll
    for (int k = 0; k < kVec; ++k) squares += v[chunk][k] * v[chunk][k];
  });
  const float scale = 1.0f / sqrtf(row_sum<kThreads>(squares, warps) / static_cast<float>(D) + c.eps);
  Largest<T> largest(c.most);
  for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int i) {
    float weight[kVec];
    load_norm_weight<T>(c.scales.weight, c.scales.float_weight, i, weight);
#pragma unroll
    for (int k = 0; k < kVec; ++k) v[chunk][k] *= scale * weight[k];
    largest.see(v[chunk]);
    store(static_cast<T*>(c.normed) + start + i, v[chunk]);
  });
  largest.leave();
  if (threadIdx.x == 0) c.scale[row] = scale;
}

enum { kSum, kDnormed, kDsum, kRead, kX = kRead, kDx, kReadWithSides };  // tensors that are read row by row

template <class T, int kThreads, int kRows, int kChunks, int kTensors>
__global__ void __launch_bounds__(kThreads* kRows) rms_norm_backward_kernel(const RmsNormBackward c) {
  constexpr bool kSides = kTensors == kReadWithSides;
  constexpr int kVec = kWide<T>;
  __shared__ float warps[kThreads / 32];
  const int D = static_cast<int>(c.D);
  const float of_x = number<T>(c.scales.x, c.scales.float_sides),
              of_y = number<T>(c.scales.y, c.scales.float_sides);
  float dweight[kChunks][kVec] = {}, along_x = 0, along_sum = 0;  // of the sum's gradient
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRows,
                first = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y;
  const void* tensors[kTensors] = {kSides || c.dnormed ? c.sum : nullptr, c.dnormed, c.dsum};
  if constexpr (kSides) tensors[kX] = c.x, tensors[kDx] = c.dx_before;
  RowsAhead<T, kTensors, kThreads, kRows, kChunks> ahead(dynamic_shared(), tensors, c.rows, D);
  ahead.begin(first);
  Largest<T> largest(c.most);
  float next_scale = first < c.rows ? c.scale[first] : 0;
  for (int64_t row = first; row < c.rows; row += stride) {
    const int64_t start = row * D;
    ahead.step(row, row + stride);
    const float scale = next_scale;
    if (row + stride < c.rows) next_scale = c.scale[row + stride];
    float v[kChunks][kVec] = {}, g[kChunks][kVec] = {}, dot = 0;
    if (c.dnormed) {
      for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int i) {
        float weight[kVec];
        ahead.load(kSum, chunk, v[chunk]);
        ahead.load(kDnormed, chunk, g[chunk]);
        load_norm_weight<T>(c.scales.weight, c.scales.float_weight, i, weight);
#pragma unroll
        for (int k = 0; k < kVec; ++k) {
          v[chunk][k] *= scale;
          dweight[chunk][k] += g[chunk][k] * v[chunk][k];
          g[chunk][k] *= weight[k];
          dot += g[chunk][k] * v[chunk][k];
        }
      });
      dot = row_sum<kThreads>(dot, warps) / static_cast<float>(D);
    }
    for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int i) {
      float d[kVec] = {};
      if (c.dsum) ahead.load(kDsum, chunk, d);
#pragma unroll
      for (int k = 0; k < kVec; ++k) d[k] += scale * (g[chunk][k] - v[chunk][k] * dot);
      if constexpr (kSides) {
        float x[kVec], sum[kVec], dy[kVec], before[kVec] = {};
        ahead.load(kX, chunk, x);
        ahead.load(kSum, chunk, sum);
        if (c.dx_before) ahead.load(kDx, chunk, before);
#pragma unroll
        for (int k = 0; k < kVec; ++k) {
          along_x += d[k] * x[k];
          along_sum += d[k] * sum[k];
          dy[k] = d[k] * of_y;
          d[k] = before[k] + d[k] * of_x;
        }
        largest.see(dy);
        store(static_cast<T*>(c.dy) + start + i, dy);
      } else {
        largest.see(d);
      }
      store(static_cast<T*>(c.dx) + start + i, d);
    });
  }
  largest.leave();
  __syncthreads();  // all have read their rows
  auto* shared = reinterpret_cast<float*>(dynamic_shared());
  if (c.dweight)
    leave_sums<kVec, kThreads, kRows, kChunks>(dweight, shared,
                                               c.partial + static_cast<int64_t>(blockIdx.x) * D, D);
  if constexpr (!kSides) return;
  // y + branch is what the sum has besides x.
  const float of_x_scale = row_sum<kThreads>(along_x, warps), of_sum = row_sum<kThreads>(along_sum, warps);
  const float sides[2] = {of_x_scale, of_y == 0 ? 0 : (of_sum - of_x * of_x_scale) / of_y};
  if (threadIdx.x == 0) shared[2 * threadIdx.y] = sides[0], shared[2 * threadIdx.y + 1] = sides[1];
  __syncthreads();
  if (threadIdx.y != 0 || threadIdx.x >= 2) return;
  float total = 0;
#pragma unroll
  for (int y = 0; y < kRows; ++y) total += shared[2 * y + threadIdx.x];
  c.partial[static_cast<int64_t>(gridDim.x) * D + 2 * blockIdx.x + threadIdx.x] = total;
}

}  // namespace

cudaError_t launch(const RmsNormForward& c, cudaStream_t stream) {
  if (c.rows == 0 || c.D == 0) return cudaSuccess;
  return with_rows<kForwardChunks>(
      c.dtype, c.rows, c.D, [&]<class T, class Threads, class Rows, class Chunks>(T, Threads, Rows, Chunks) {
        return start(rms_norm_forward_kernel<T, Threads::value, Rows::value, Chunks::value>,
                     row_blocks(c.rows, Rows::value), dim3(Threads::value, Rows::value), 0, stream, c);
      });
}

int rms_norm_parts(int64_t rows) { return row_parts(rows, 3); }

cudaError_t launch(const RmsNormBackward& c, cudaStream_t stream) {
  if (c.D == 0) return cudaSuccess;
  const int parts = rms_norm_parts(c.rows), D = static_cast<int>(c.D);
  return with_rows(
      c.dtype, c.rows, c.D, [&]<class T, class Threads, class Rows, class Chunks>(T, Threads, Rows, Chunks) {
        const auto finish = [&]<class Sums>(Sums, void* out, const float* partial, int columns) {
          return finish_sums<Sums, 1>(partial, parts, {{out}, columns}, stream);
        };
        const auto in_its_type = [&](bool wide, void* out, const float* partial, int columns) {
          return wide ? finish(float{}, out, partial, columns) : finish(T{}, out, partial, columns);
        };
        const auto run = [&]<int kTensors>(std::integral_constant<int, kTensors>) {
          const size_t shared =
              std::max(Rows::value * D * sizeof(float),
                       RowsAhead<T, kTensors, Threads::value, Rows::value, Chunks::value>::kBytes);
          return start(rms_norm_backward_kernel<T, Threads::value, Rows::value, Chunks::value, kTensors>,
                       parts, dim3(Threads::value, Rows::value), shared, stream, c);
        };
        auto status = c.dsides ? run(std::integral_constant<int, kReadWithSides>{})
                               : run(std::integral_constant<int, kRead>{});
        if (status == cudaSuccess && c.dweight)
          status = in_its_type(c.scales.float_weight, c.dweight, c.partial, D);
        if (status == cudaSuccess && c.dsides)
          status =
              in_its_type(c.scales.float_sides, c.dsides, c.partial + static_cast<int64_t>(parts) * D, 2);
        return status;
      });
}

}  // namespace tightloop::ops::cuda
