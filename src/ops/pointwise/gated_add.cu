#include <climits>

#include "ops/kernel.cuh"
#include "ops/pointwise/gated_add_launch.h"

namespace tightloop::ops::cuda {

namespace {

// kLanes threads have a head, 16 bytes each; the last of them may have nothing. A block has kThreads / kLanes
// heads.
constexpr int kThreads = 256;

template <class T, int kLanes>
__global__ void __launch_bounds__(kThreads) gated_add_forward_kernel(const GatedAddForward c) {
  constexpr int kVec = kWide<T>;
  const int64_t head = static_cast<int64_t>(blockIdx.x) * (kThreads / kLanes) + threadIdx.x / kLanes;
  const int i = threadIdx.x % kLanes * kVec;
  if (head >= c.rows * c.K || i >= c.S) return;
  float x[kVec], extra[kVec];
  load(static_cast<const T*>(c.x) + head / c.K * c.stride + head % c.K * c.S + i, x);
  load(static_cast<const T*>(c.extra) + head * c.S + i, extra);
  const float gate = c.scale * sigmoid(to_float(static_cast<const T*>(c.open)[head]));
#pragma unroll
  for (int k = 0; k < kVec; ++k) x[k] += gate * extra[k];
  store(static_cast<T*>(c.y) + head * c.S + i, x);
}

template <class T, int kLanes>
__global__ void __launch_bounds__(kThreads) gated_add_backward_kernel(const GatedAddBackward c) {
  constexpr int kVec = kWide<T>;
  const int64_t head = static_cast<int64_t>(blockIdx.x) * (kThreads / kLanes) + threadIdx.x / kLanes;
  const int i = threadIdx.x % kLanes * kVec;
  const bool has = head < c.rows * c.K;
  const float s = has ? sigmoid(to_float(static_cast<const T*>(c.open)[head])) : 0;
  float dot = 0;
  if (has && i < c.S) {
    float dy[kVec], extra[kVec];
    load(static_cast<const T*>(c.dy) + head * c.S + i, dy);
    load(static_cast<const T*>(c.extra) + head * c.S + i, extra);
#pragma unroll
    for (int k = 0; k < kVec; ++k) {
      dot += dy[k] * extra[k];
      dy[k] *= c.scale * s;
    }
    store(static_cast<T*>(c.dextra) + head * c.S + i, dy);
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    dot += __shfl_xor_sync(0xffffffffu, dot, distance);
  if (has && i == 0) static_cast<T*>(c.dopen)[head] = from_float<T>(c.scale * s * (1 - s) * dot);
}

/// run(T{}, integral constant of the threads for a head)
template <class Run>
cudaError_t with_lanes(Dtype dtype, int64_t S, Run&& run) {
  return with_type(dtype, [&]<class T>(T) {
    const int64_t packs = S / kWide<T>;
    if (S % kWide<T> != 0 || packs > 32) return cudaErrorInvalidValue;
    if (packs <= 8) return run(T{}, std::integral_constant<int, 8>{});
    if (packs <= 16) return run(T{}, std::integral_constant<int, 16>{});
    return run(T{}, std::integral_constant<int, 32>{});
  });
}

template <class Kernel, class Call>
cudaError_t start_heads(Kernel kernel, int lanes, const Call& c, cudaStream_t stream) {
  const int64_t each = kThreads / lanes, blocks = (c.rows * c.K + each - 1) / each;
  if (blocks > INT_MAX) return cudaErrorInvalidValue;
  return start(kernel, static_cast<unsigned>(blocks), kThreads, 0, stream, c);
}

}  // namespace

cudaError_t launch(const GatedAddForward& c, cudaStream_t stream) {
  if (c.rows == 0 || c.K == 0 || c.S == 0) return cudaSuccess;
  return with_lanes(c.dtype, c.S, [&]<class T, class Lanes>(T, Lanes) {
    return start_heads(gated_add_forward_kernel<T, Lanes::value>, Lanes::value, c, stream);
  });
}

cudaError_t launch(const GatedAddBackward& c, cudaStream_t stream) {
  if (c.rows == 0 || c.K == 0 || c.S == 0) return cudaSuccess;
  return with_lanes(c.dtype, c.S, [&]<class T, class Lanes>(T, Lanes) {
    return start_heads(gated_add_backward_kernel<T, Lanes::value>, Lanes::value, c, stream);
  });
}

}  // namespace tightloop::ops::cuda
