#include <algorithm>
#include <climits>

#include "ops/column_sums.cuh"
#include "ops/kernel.cuh"
#include "ops/philox.cuh"
#include "ops/pointwise/activation_launch.h"

namespace tightloop::ops::cuda {

namespace {

// A thread keeps to 16 bytes of columns, whose biases it holds in registers, and walks down the rows. 8 rows
// are under way in a block.
constexpr int kLanes = 32, kRows = 8, kMostBlocks = 528;
// Rows of a thread whose loads do not wait for each other.
constexpr int kUnderWay = 4, kBackwardUnderWay = 2;

constexpr float kSqrtHalf = 0.70710678118654752f, kTanhScale = 0.79788456080286536f, kTanhCube = 0.044715f;

template <ActivationKind kKind>
__device__ inline float activate(float z) {
  const float positive = z < 0 ? 0.0f : z;  // NaN stays
  if constexpr (kKind == ActivationKind::kRelu) return positive;
  if constexpr (kKind == ActivationKind::kReluSquare) return positive * positive;
  if constexpr (kKind == ActivationKind::kGelu) return 0.5f * z * (1 + erff(z * kSqrtHalf));
  return z * sigmoid(2 * kTanhScale * (z + kTanhCube * z * z * z));  // z (1 + tanh(half of it)) / 2
}

template <ActivationKind kKind>
__device__ inline float slope(float z) {
  if constexpr (kKind == ActivationKind::kRelu) return z <= 0 ? 0.0f : 1.0f;
  if constexpr (kKind == ActivationKind::kReluSquare) return z < 0 ? 0.0f : 2 * z;
  if constexpr (kKind == ActivationKind::kSquared)
    return z > 0 ? 2 * z * rsqrtf(z) : z;  // 2 sqrt(z); NaN stays
  if constexpr (kKind == ActivationKind::kGelu) {
    constexpr float kDensity = 0.39894228040143268f;  // of the normal distribution at 0
    return 0.5f * (1 + erff(z * kSqrtHalf)) + z * kDensity * expf(-0.5f * z * z);
  }
  const float s = sigmoid(2 * kTanhScale * (z + kTanhCube * z * z * z));
  return s + 2 * kTanhScale * z * s * (1 - s) * (1 + 3 * kTanhCube * z * z);
}

template <class T, ActivationKind kKind>
__global__ void __launch_bounds__(kLanes* kRows) activation_forward_kernel(const ActivationForward c) {
  constexpr int kVec = kWide<T>;
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kLanes + threadIdx.x) * kVec;
  const int64_t rows = i < c.D ? c.rows : 0;  // of this thread
  const Dropper drop(c.drop);
  Largest<T> largest(c.most);
  float bias[kVec] = {}, v[kVec];
  if (c.bias && i < c.D) load(static_cast<const T*>(c.bias) + i, bias);
  const int64_t stride = static_cast<int64_t>(gridDim.y) * kRows;
  for (int64_t row = blockIdx.y * kRows + threadIdx.y; row < rows; row += kUnderWay * stride) {
    uint4 raw[kUnderWay] = {};
#pragma unroll
    for (int u = 0; u < kUnderWay; ++u)
      if (row + u * stride < c.rows)
        raw[u] = load_raw(static_cast<const T*>(c.x) + (row + u * stride) * c.D + i);
#pragma unroll
    for (int u = 0; u < kUnderWay; ++u) {
      if (row + u * stride >= c.rows) break;
      const int64_t at = (row + u * stride) * c.D + i;
      unpack<T>(raw[u], v);
#pragma unroll
      for (int k = 0; k < kVec; ++k) v[k] = activate<kKind>(v[k] + bias[k]);
      if (c.drop.random) drop.apply(at, v);
      largest.see(v);
      store(static_cast<T*>(c.y) + at, v);
    }
  }
  largest.leave();
}

template <class T, ActivationKind kKind>
__global__ void __launch_bounds__(kLanes* kRows) activation_backward_kernel(const ActivationBackward c) {
  constexpr int kVec = kWide<T>;
  __shared__ float sums[kRows][kLanes * kVec];
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kLanes + threadIdx.x) * kVec;
  float dbias[kVec] = {};
  Largest<T> largest(c.most);
  if (i < c.D) {
    const Dropper drop(c.drop);
    float bias[kVec] = {}, v[kVec], d[kVec];
    if (c.bias) load(static_cast<const T*>(c.bias) + i, bias);
    const int64_t stride = static_cast<int64_t>(gridDim.y) * kRows;
    for (int64_t row = blockIdx.y * kRows + threadIdx.y; row < c.rows; row += kBackwardUnderWay * stride) {
      uint4 x[kBackwardUnderWay] = {}, dy[kBackwardUnderWay] = {};
#pragma unroll
      for (int u = 0; u < kBackwardUnderWay; ++u) {
        if (row + u * stride >= c.rows) break;
        const int64_t at = (row + u * stride) * c.D + i;
        x[u] = load_raw(static_cast<const T*>(c.x) + at);
        dy[u] = load_raw(static_cast<const T*>(c.dy) + at);
      }
#pragma unroll
      for (int u = 0; u < kBackwardUnderWay; ++u) {
        if (row + u * stride >= c.rows) break;
        const int64_t at = (row + u * stride) * c.D + i;
        unpack<T>(x[u], v);
        unpack<T>(dy[u], d);
        if (c.drop.random) drop.apply(at, d);
#pragma unroll
        for (int k = 0; k < kVec; ++k) {
          d[k] *= slope<kKind>(v[k] + bias[k]);
          dbias[k] += d[k];
        }
        largest.see(d);
        store(static_cast<T*>(c.dx) + at, d);
      }
    }
  }
  largest.leave();
  if (!c.bias) return;
#pragma unroll
  for (int k = 0; k < kVec; ++k) sums[threadIdx.y][threadIdx.x * kVec + k] = dbias[k];
  __syncthreads();
  float* part = c.partial + blockIdx.y * c.D;
  for (int k = threadIdx.y * kLanes + threadIdx.x; k < kLanes * kVec; k += kLanes * kRows) {
    const int64_t column = static_cast<int64_t>(blockIdx.x) * kLanes * kVec + k;
    if (column >= c.D) break;
    float total = 0;
#pragma unroll
    for (int row = 0; row < kRows; ++row) total += sums[row][k];
    part[column] = total;
  }
}

/// run(T{}, integral constant of the kind)
template <class Run>
cudaError_t with_kind(Dtype dtype, ActivationKind kind, Run&& run) {
  return with_type(dtype, [&]<class T>(T) {
    switch (kind) {
      case ActivationKind::kRelu:
        return run(T{}, std::integral_constant<ActivationKind, ActivationKind::kRelu>{});
      case ActivationKind::kReluSquare:
        return run(T{}, std::integral_constant<ActivationKind, ActivationKind::kReluSquare>{});
      case ActivationKind::kGelu:
        return run(T{}, std::integral_constant<ActivationKind, ActivationKind::kGelu>{});
      case ActivationKind::kSquared:
        return run(T{}, std::integral_constant<ActivationKind, ActivationKind::kSquared>{});
      default:
        return run(T{}, std::integral_constant<ActivationKind, ActivationKind::kGeluTanh>{});
    }
  });
}

template <class T>
unsigned column_blocks(int64_t D) {
  return static_cast<unsigned>((D / kWide<T> + kLanes - 1) / kLanes);
}

}  // namespace

cudaError_t launch(const ActivationForward& c, cudaStream_t stream) {
  if (c.rows == 0 || c.D == 0) return cudaSuccess;
  return with_kind(c.dtype, c.kind, [&]<class T, class Kind>(T, Kind) {
    const int64_t groups = std::min<int64_t>((c.rows + kRows * kUnderWay - 1) / (kRows * kUnderWay), 65535);
    if constexpr (Kind::value == ActivationKind::kSquared) {
      return cudaErrorInvalidValue;
    } else {
      return start(activation_forward_kernel<T, Kind::value>,
                   dim3(column_blocks<T>(c.D), static_cast<unsigned>(groups)), dim3(kLanes, kRows), 0, stream,
                   c);
    }
  });
}

int activation_parts(int64_t rows, int64_t D) {
  const int64_t blocks = std::max<int64_t>(1, kMostBlocks * kLanes * kWide<__half> / std::max<int64_t>(1, D));
  return static_cast<int>(std::clamp<int64_t>((rows + kRows - 1) / kRows, 1, blocks));
}

cudaError_t launch(const ActivationBackward& c, cudaStream_t stream) {
  if (c.D == 0) return cudaSuccess;
  if (c.D > INT_MAX) return cudaErrorInvalidValue;
  const int parts = activation_parts(c.rows, c.D);
  return with_kind(c.dtype, c.kind, [&]<class T, class Kind>(T, Kind) {
    const auto status =
        start(activation_backward_kernel<T, Kind::value>,
              dim3(column_blocks<T>(c.D), static_cast<unsigned>(parts)), dim3(kLanes, kRows), 0, stream, c);
    if (status != cudaSuccess || !c.bias) return status;
    return finish_sums<T, 1>(c.partial, parts, {{c.dbias}, static_cast<int>(c.D)}, stream);
  });
}

}  // namespace tightloop::ops::cuda
