#include "ops/optim/gradient_norm_launch.h"
#include "ops/kernel.cuh"

namespace tightloop::ops::cuda {

namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    norm_pieces_kernel(const __grid_constant__ NormTable table, float* sums) {
  __shared__ float warps[kThreads / 32];
  const int tensor = tensor_of(table.map, blockIdx.x);
  const T* values = static_cast<const T*>(table.tensors[tensor]);
  const int64_t begin = (blockIdx.x - table.map.first_block[tensor]) * kPiece;
  const int64_t end = min(begin + kPiece, table.sizes[tensor]);
  const int64_t whole = begin + (end - begin) / kWide<T> * kWide<T>;
  float sum = 0;
  for (int64_t at = begin + threadIdx.x * kWide<T>; at < whole; at += kThreads * kWide<T>) {
    float v[kWide<T>];
    load(values + at, v);
#pragma unroll
    for (int k = 0; k < kWide<T>; ++k) sum += v[k] * v[k];
  }
  if (whole + threadIdx.x < end) {
    const float v = to_float(values[whole + threadIdx.x]);
    sum += v * v;
  }
  sum = row_sum<kThreads>(sum, warps);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) norm_kernel(const float* sums, int64_t count, float* norm) {
  __shared__ double parts[kThreads];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += sums[i];
  parts[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *norm = static_cast<float>(sqrt(parts[0]));
}

}  // namespace

cudaError_t launch(const PieceSums& call, cudaStream_t stream) {
  if (call.table->map.blocks() == 0) return cudaSuccess;
  return with_type(call.dtype, [&]<class T>(T) {
    return start(norm_pieces_kernel<T>, call.table->map.blocks(), kThreads, 0, stream, *call.table,
                 call.sums);
  });
}

cudaError_t launch(const NormOfSums& call, cudaStream_t stream) {
  return start(norm_kernel, 1, kThreads, 0, stream, call.sums, call.count, call.norm);
}

}  // namespace tightloop::ops::cuda
