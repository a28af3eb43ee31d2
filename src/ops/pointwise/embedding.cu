#include "ops/pointwise/embedding_launch.h"

#include <algorithm>
#include <climits>

#include "ops/kernel.cuh"

// A run is the positions of one id. A warp sums up the runs of a window of sorted positions for a tile of
// columns; what of a run lies in one window is written at once, so the sums of rare tokens take one pass. A
// run over several windows leaves a partial row in each, in slot 1 of the window where it begins and in slot
// 0 of those that follow, and a second launch adds these in order.

namespace tightloop::ops::cuda {

namespace {

constexpr int kWindow = 32, kWindowsOfBlock = 4;
constexpr int kUnderWay = 8;  // rows that a thread loads at once

struct Part {
  int64_t window, column;
};

/// What a thread works on where each has kVec columns. Neighbouring blocks share windows: a row's tiles are
/// read one shortly after the other.
template <int kVec>
__device__ inline Part part_of(int64_t D) {
  const auto tiles = static_cast<unsigned>((D + 32 * kVec - 1) / (32 * kVec));
  return {static_cast<int64_t>(blockIdx.x / tiles) * kWindowsOfBlock + threadIdx.y,
          static_cast<int64_t>(blockIdx.x % tiles * 32 + threadIdx.x) * kVec};
}

__device__ inline bool has_row(const EmbeddingBackward& c, int32_t id) { return id >= 0 && id < c.V; }

template <class T>
__global__ void __launch_bounds__(32 * kWindowsOfBlock) embedding_windows_kernel(const EmbeddingBackward c) {
  constexpr int kVec = kWide<T>;
  const auto [window, column] = part_of<kVec>(c.D);
  const int64_t begin = window * kWindow;
  if (begin >= c.N || column >= c.D) return;
  const int count = static_cast<int>(min(static_cast<int64_t>(kWindow), c.N - begin));
  const int32_t* ids = c.ids + begin;
  const int64_t* positions = c.positions + begin;
  const T* dy = static_cast<const T*>(c.dy) + column;
  const bool continued = begin > 0 && ids[-1] == ids[0];
  const bool goes_on = begin + count < c.N && ids[count] == ids[count - 1];
  bool in_first = true;  // run of the window
  float sum[kVec] = {};
  for (int at = 0; at < count; at += kUnderWay) {
    int32_t id[kUnderWay + 1];
    Pack<T, kVec> rows[kUnderWay];
#pragma unroll
    for (int k = 0; k <= kUnderWay; ++k) id[k] = ids[min(at + k, count - 1)];
#pragma unroll
    for (int k = 0; k < kUnderWay; ++k)
      rows[k] = *reinterpret_cast<const Pack<T, kVec>*>(dy + positions[min(at + k, count - 1)] * c.D);
#pragma unroll
    for (int k = 0; k < kUnderWay; ++k) {
      if (at + k >= count) break;
#pragma unroll
      for (int i = 0; i < kVec; ++i) sum[i] += to_float(rows[k].at[i]);
      const bool at_end = at + k + 1 == count;
      if (!at_end && id[k] == id[k + 1]) continue;
      const bool from_before = in_first && continued;
      if (from_before || (at_end && goes_on)) {
        store(c.partial + (2 * window + (from_before ? 0 : 1)) * c.D + column, sum);
      } else if (has_row(c, id[k])) {
        store(static_cast<T*>(c.dweight) + id[k] * c.D + column, sum);
      }
      in_first = false;
#pragma unroll
      for (int i = 0; i < kVec; ++i) sum[i] = 0;
    }
  }
}

constexpr int kPartialVec = 2;  // narrow: a common token's many rows are for many warps

/// Adds the partial rows of a run from window `next` on, kRows at a time and in the end fewer. Ids ascend: if
/// the last of some windows begins with the run's id, all of them do.
template <int kRows>
__device__ inline void add_partials(const EmbeddingBackward& c, int32_t id, int64_t next, int64_t column,
                                    float (&sum)[kPartialVec]) {
  const auto belongs = [&](int64_t window) {
    return window * kWindow < c.N && c.ids[window * kWindow] == id;
  };
  for (; belongs(next + kRows - 1); next += kRows) {
    float rows[kRows][kPartialVec];
#pragma unroll
    for (int k = 0; k < kRows; ++k) load(c.partial + 2 * (next + k) * c.D + column, rows[k]);
#pragma unroll
    for (int k = 0; k < kRows; ++k)
#pragma unroll
      for (int i = 0; i < kPartialVec; ++i) sum[i] += rows[k][i];
  }
  if constexpr (kRows > 1) add_partials<kRows / 2>(c, id, next, column, sum);
}

template <class T>
__global__ void __launch_bounds__(32 * kWindowsOfBlock) embedding_join_kernel(const EmbeddingBackward c) {
  const auto [window, column] = part_of<kPartialVec>(c.D);
  const int64_t begin = window * kWindow, end = begin + kWindow;
  if (end >= c.N || column >= c.D) return;
  const int32_t id = c.ids[end];
  const bool crosses = c.ids[end - 1] == id, begins_before = begin > 0 && c.ids[begin - 1] == id;
  if (!crosses || begins_before || !has_row(c, id)) return;
  float sum[kPartialVec];
  load(c.partial + (2 * window + 1) * c.D + column, sum);
  add_partials<kUnderWay>(c, id, window + 1, column, sum);
  store(static_cast<T*>(c.dweight) + id * c.D + column, sum);
}

}  // namespace

int64_t embedding_windows(int64_t N) { return (N + kWindow - 1) / kWindow; }

cudaError_t launch(const EmbeddingBackward& c, cudaStream_t stream) {
  if (c.N == 0 || c.D == 0) return cudaSuccess;
  return with_type(c.dtype, [&]<class T>(T) {
    const auto blocks = [&](int vec) {
      const int64_t tiles = (c.D + 32 * vec - 1) / (32 * vec);
      return tiles * ((embedding_windows(c.N) + kWindowsOfBlock - 1) / kWindowsOfBlock);
    };
    if (c.D % kWide<T> != 0 || blocks(kPartialVec) > INT_MAX) return cudaErrorInvalidValue;
    const dim3 block(32, kWindowsOfBlock);
    const auto status =
        start(embedding_windows_kernel<T>, static_cast<unsigned>(blocks(kWide<T>)), block, 0, stream, c);
    if (status != cudaSuccess || c.N <= kWindow) return status;
    return start(embedding_join_kernel<T>, static_cast<unsigned>(blocks(kPartialVec)), block, 0, stream, c);
  });
}

}  // namespace tightloop::ops::cuda
