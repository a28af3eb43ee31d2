#include <algorithm>
#include <climits>

#include "ops/column_sums.cuh"
#include "ops/kernel.cuh"
#include "ops/rms_norm_launch.h"

namespace tightloop::ops::cuda {

namespace {

// Short rows get a warp each and several share a block; long ones get a block of their own.
constexpr int kShort = 1024, kWarpRows = 4, kBlockThreads = 256;

template <class T, class W, int kVec, int kThreads, int kRows>
__global__ void __launch_bounds__(kThreads* kRows)
    rms_norm_forward_kernel(const T* x, const W* weight, T* y, float* scale, int64_t rows, int D, float eps) {
  __shared__ float warps[kThreads / 32];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y;
  if (row >= rows) return;  // whole warps, or the whole block
  x += row * D;
  y += row * D;
  float squares = 0, v[kVec], w[kVec];
  for (int i = threadIdx.x * kVec; i < D; i += kThreads * kVec) {
    load(x + i, v);
#pragma unroll
    for (int k = 0; k < kVec; ++k) squares += v[k] * v[k];
  }
  const float s = 1.0f / sqrtf(row_sum<kThreads>(squares, warps) / static_cast<float>(D) + eps);
  for (int i = threadIdx.x * kVec; i < D; i += kThreads * kVec) {
    load(x + i, v);
    load(weight + i, w);
#pragma unroll
    for (int k = 0; k < kVec; ++k) v[k] *= s * w[k];
    store(y + i, v);
  }
  if (threadIdx.x == 0) scale[row] = s;
}

// dx, and the sums for dweight over this block's rows. The sums live in shared memory, (kRows, D); each
// element is touched by one thread only until the end.
template <class T, class W, int kVec, int kThreads, int kRows>
__global__ void __launch_bounds__(kThreads* kRows)
    rms_norm_backward_kernel(const T* dy, const T* x, const W* weight, const float* scale, T* dx,
                             float* partial, int64_t rows, int D) {
  auto* sums = reinterpret_cast<float*>(dynamic_shared());
  __shared__ float warps[kThreads / 32];
  float* mine = sums + threadIdx.y * D;
  for (int i = threadIdx.x * kVec; i < D; i += kThreads * kVec)
#pragma unroll
    for (int k = 0; k < kVec; ++k) mine[i + k] = 0;

  const int64_t stride = static_cast<int64_t>(gridDim.x) * kRows;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.y; row < rows; row += stride) {
    const float s = scale[row];
    const T *g_row = dy + row * D, *x_row = x + row * D;
    float dot = 0, g[kVec], v[kVec], w[kVec];
    for (int i = threadIdx.x * kVec; i < D; i += kThreads * kVec) {
      load(g_row + i, g);
      load(x_row + i, v);
      load(weight + i, w);
#pragma unroll
      for (int k = 0; k < kVec; ++k) {
        const float product = g[k] * (v[k] * s);
        mine[i + k] += product;
        dot += product * w[k];
      }
    }
    const float pull = row_sum<kThreads>(dot, warps) / static_cast<float>(D);
    for (int i = threadIdx.x * kVec; i < D; i += kThreads * kVec) {
      load(g_row + i, g);
      load(x_row + i, v);
      load(weight + i, w);
#pragma unroll
      for (int k = 0; k < kVec; ++k) v[k] = s * (g[k] * w[k] - v[k] * s * pull);
      store(dx + row * D + i, v);
    }
  }
  __syncthreads();
  for (int i = threadIdx.y * kThreads + threadIdx.x; i < D; i += kThreads * kRows) {
    float total = 0;
#pragma unroll
    for (int lane = 0; lane < kRows; ++lane) total += sums[lane * D + i];
    partial[static_cast<int64_t>(blockIdx.x) * D + i] = total;
  }
}

template <class T, class W, int kVec>
cudaError_t forward(const RmsNormForward& c, cudaStream_t stream) {
  const auto* x = static_cast<const T*>(c.x);
  const auto* weight = static_cast<const W*>(c.weight);
  auto* y = static_cast<T*>(c.y);
  const int D = static_cast<int>(c.D);
  if (c.D <= kShort) {
    const auto blocks = static_cast<unsigned>((c.rows + kWarpRows - 1) / kWarpRows);
    return start(rms_norm_forward_kernel<T, W, kVec, 32, kWarpRows>, blocks, dim3(32, kWarpRows), 0, stream,
                 x, weight, y, c.scale, c.rows, D, c.eps);
  }
  return start(rms_norm_forward_kernel<T, W, kVec, kBlockThreads, 1>, static_cast<unsigned>(c.rows),
               kBlockThreads, 0, stream, x, weight, y, c.scale, c.rows, D, c.eps);
}

template <class T, class W, int kVec, int kThreads, int kRows>
cudaError_t backward_rows(const RmsNormBackward& c, int parts, cudaStream_t stream) {
  return start(rms_norm_backward_kernel<T, W, kVec, kThreads, kRows>, parts, dim3(kThreads, kRows),
               sizeof(float) * kRows * c.D, stream, static_cast<const T*>(c.dy), static_cast<const T*>(c.x),
               static_cast<const W*>(c.weight), c.scale, static_cast<T*>(c.dx), c.partial, c.rows,
               static_cast<int>(c.D));
}

template <class T, class W, int kVec>
cudaError_t backward(const RmsNormBackward& c, cudaStream_t stream) {
  const int parts = rms_norm_parts(c.rows, c.D), D = static_cast<int>(c.D);
  const auto status = c.D <= kShort ? backward_rows<T, W, kVec, 32, kWarpRows>(c, parts, stream)
                                    : backward_rows<T, W, kVec, kBlockThreads, 1>(c, parts, stream);
  if (status != cudaSuccess) return status;
  return finish_sums<W, 1>(c.partial, parts, {{c.dweight}, D}, stream);
}

/// run(T{}, W{}, integral constant of the vector length)
template <class Call, class Run>
cudaError_t with_types(const Call& c, bool all_aligned, Run&& run) {
  return with_type(c.dtype, [&]<class T>(T) {
    const bool wide = all_aligned && c.D % kWide<T> == 0;
    const auto with_weight = [&]<class W>(W) {
      return wide ? run(T{}, W{}, std::integral_constant<int, kWide<T>>{})
                  : run(T{}, W{}, std::integral_constant<int, 1>{});
    };
    return c.float_weight ? with_weight(float{}) : with_weight(T{});
  });
}

}  // namespace

cudaError_t launch(const RmsNormForward& c, cudaStream_t stream) {
  if (c.rows == 0 || c.D == 0) return cudaSuccess;
  if (c.rows > INT_MAX || c.D > INT_MAX) return cudaErrorInvalidValue;
  return with_types(
      c, aligned(c.x) && aligned(c.weight) && aligned(c.y),
      [&]<class T, class W, class Vec>(T, W, Vec) { return forward<T, W, Vec::value>(c, stream); });
}

int rms_norm_parts(int64_t rows, int64_t D) {
  return static_cast<int>(D <= kShort ? std::min<int64_t>(1024, (rows + kWarpRows - 1) / kWarpRows)
                                      : std::min<int64_t>(512, rows));
}

cudaError_t launch(const RmsNormBackward& c, cudaStream_t stream) {
  if (c.D == 0) return cudaSuccess;
  if (c.rows == 0)
    return cudaMemsetAsync(c.dweight, 0, c.D * (c.float_weight || c.dtype == Dtype::kFloat32 ? 4 : 2),
                           stream);
  if (c.rows > INT_MAX || c.D > INT_MAX) return cudaErrorInvalidValue;
  const bool all_aligned = aligned(c.dy) && aligned(c.x) && aligned(c.weight) && aligned(c.dx);
  return with_types(c, all_aligned, [&]<class T, class W, class Vec>(T, W, Vec) {
    return backward<T, W, Vec::value>(c, stream);
  });
}

}  // namespace tightloop::ops::cuda
