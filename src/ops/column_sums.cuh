#pragma once

// Sums over rows, such as a bias's gradient: each block leaves a row of partial sums behind, and a second
// launch adds these rows in order. The result has the same bits on every run.

#include "ops/kernel.cuh"

namespace tightloop::ops::cuda {

/// `count` results of D columns each, which follow one another in a row of partial sums; some may be
/// unwanted.
template <int kCount>
struct ColumnSums {
  void* out[kCount];
  int D;
};

constexpr int kSumColumns = 32, kSumLanes = 8;

template <class T, int kCount>
__global__ void __launch_bounds__(kSumColumns* kSumLanes)
    finish_sums_kernel(const float* partial, int parts, const ColumnSums<kCount> sums) {
  __shared__ float lanes[kSumLanes][kSumColumns];
  const int column = blockIdx.x * kSumColumns + threadIdx.x, columns = kCount * sums.D;
  const bool wanted = column < columns && sums.out[column / sums.D];
  float total = 0;
  if (wanted)
    for (int part = threadIdx.y; part < parts; part += kSumLanes)
      total += partial[static_cast<int64_t>(part) * columns + column];
  lanes[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || !wanted) return;
  for (int lane = 1; lane < kSumLanes; ++lane) total += lanes[lane][threadIdx.x];
  static_cast<T*>(sums.out[column / sums.D])[column % sums.D] = from_float<T>(total);
}

template <class T, int kCount>
cudaError_t finish_sums(const float* partial, int parts, const ColumnSums<kCount>& sums,
                        cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((kCount * sums.D + kSumColumns - 1) / kSumColumns);
  return start(finish_sums_kernel<T, kCount>, blocks, dim3(kSumColumns, kSumLanes), 0, stream, partial, parts,
               sums);
}

}  // namespace tightloop::ops::cuda
