#include <cuda_fp8.h>

#include <algorithm>
#include <climits>

#include "ops/fp8/fp8_cast_launch.h"
#include "ops/kernel.cuh"

namespace tightloop::ops::cuda {

namespace {

constexpr int kThreads = 256;
constexpr float kSmallestMost = 1e-30f;  // below it (Fp8Matrix) a scale would overflow

// Blocks walk over the elements, 16 bytes a thread, four of them under way.
template <class T>
__global__ void __launch_bounds__(kThreads) absolute_max_kernel(const AbsoluteMax c) {
  constexpr int kVec = kWide<T>, kUnder = 4;
  __shared__ float warps[kThreads / 32];
  const T* x = static_cast<const T*>(c.x);
  const int64_t all = static_cast<int64_t>(gridDim.x) * kThreads * kVec;
  float most = 0;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVec; i < c.count;
       i += kUnder * all) {
    float v[kUnder][kVec];
#pragma unroll
    for (int u = 0; u < kUnder; ++u) {
      if (i + u * all < c.count) {
        load(x + i + u * all, v[u]);
      } else {
#pragma unroll
        for (int k = 0; k < kVec; ++k) v[u][k] = 0;
      }
    }
#pragma unroll
    for (int u = 0; u < kUnder; ++u)
#pragma unroll
      for (int k = 0; k < kVec; ++k) most = fmaxf(most, fabsf(v[u][k]));
  }
  most = row_max<kThreads>(most, warps);
  if (threadIdx.x == 0)
    atomicMax(reinterpret_cast<int*>(c.most), __float_as_int(most));  // of floats above 0 alike
}

// A block casts a tile of 64 rows and 128 columns: a thread 4 rows of 8 columns, which give 8 words of the
// transpose. Those meet in shared memory, from which rows of the transpose go out 16 bytes at a time.
constexpr int kTileRows = 64, kTileColumns = 128, kWords = kTileRows / 4;

template <class T, __nv_fp8_interpretation_t kFormat>
__global__ void __launch_bounds__(kThreads) fp8_cast_kernel(const Fp8Cast c) {
  constexpr int kVec = 8, kHeight = 4;
  constexpr float kLargest = kFormat == __NV_E5M2 ? 57344.0f : 448.0f;
  __shared__ uint32_t tile[kTileColumns][kWords + 1];
  const float found = *c.most, most = found < kSmallestMost ? 0 : found;
  const float scale = most > 0 ? kLargest / most : 1.0f;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *c.scale = most > 0 ? most / kLargest : 1.0f;

  const int group = threadIdx.x % (kTileColumns / kVec), word = threadIdx.x / (kTileColumns / kVec);
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTileRows,
                first_column = static_cast<int64_t>(blockIdx.x) * kTileColumns;
  const int64_t column = first_column + group * kVec;
  uint32_t turned[kVec] = {};
  if (column < c.columns) {
#pragma unroll
    for (int r = 0; r < kHeight; ++r) {
      const int64_t row = first_row + word * kHeight + r;
      if (row >= c.rows) break;
      float v[kVec];
      load(static_cast<const T*>(c.x) + row * c.columns + column, v);
      uint32_t packed[2] = {};
#pragma unroll
      for (int k = 0; k < kVec; k += 2) {
        const uint32_t two =
            __nv_cvt_float2_to_fp8x2(make_float2(v[k] * scale, v[k + 1] * scale), __NV_SATFINITE, kFormat);
        packed[k / 4] |= two << (8 * (k % 4));
        turned[k] |= (two & 0xff) << (8 * r);
        turned[k + 1] |= (two >> 8) << (8 * r);
      }
      if (c.by_rows)
        *reinterpret_cast<uint2*>(c.by_rows + row * c.columns + column) = make_uint2(packed[0], packed[1]);
    }
  }
  if (!c.by_columns) return;
#pragma unroll
  for (int k = 0; k < kVec; ++k) tile[group * kVec + k][word] = turned[k];
  __syncthreads();
  constexpr int kParts = kWords / 4;  // of 16 bytes
#pragma unroll
  for (int i = threadIdx.x; i < kTileColumns * kParts; i += kThreads) {
    const int at = i / kParts, part = i % kParts;
    const int64_t row = first_row + part * 16;
    if (first_column + at >= c.columns || row >= c.rows) continue;
    const uint32_t* words = tile[at] + part * 4;
    *reinterpret_cast<uint4*>(c.by_columns + (first_column + at) * c.rows + row) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

}  // namespace

cudaError_t launch(const AbsoluteMax& c, cudaStream_t stream) {
  if (c.count == 0) return cudaSuccess;
  return with_type(c.dtype, [&]<class T>(T) {
    if (c.count % kWide<T> != 0) return cudaErrorInvalidValue;
    constexpr int64_t kMostBlocks = 132 * 8;
    const int64_t blocks = (c.count / kWide<T> + kThreads - 1) / kThreads;
    return start(absolute_max_kernel<T>, static_cast<unsigned>(std::min(blocks, kMostBlocks)), kThreads, 0,
                 stream, c);
  });
}

cudaError_t launch(const Fp8Cast& c, cudaStream_t stream) {
  if (c.rows == 0 || c.columns == 0) return cudaSuccess;
  if (c.rows % 16 != 0 || c.columns % 16 != 0) return cudaErrorInvalidValue;
  const int64_t across = (c.columns + kTileColumns - 1) / kTileColumns,
                down = (c.rows + kTileRows - 1) / kTileRows;
  if (across > INT_MAX || down > 65535) return cudaErrorInvalidValue;
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(down));
  return with_type(c.dtype, [&]<class T>(T) {
    if constexpr (sizeof(T) == 2) {
      return start(c.e5m2 ? fp8_cast_kernel<T, __NV_E5M2> : fp8_cast_kernel<T, __NV_E4M3>, grid, kThreads, 0,
                   stream, c);
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

}  // namespace tightloop::ops::cuda
