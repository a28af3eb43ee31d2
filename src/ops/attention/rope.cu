#include <algorithm>
#include <climits>

#include "ops/attention/rope_launch.h"
#include "ops/kernel.cuh"

namespace tightloop::ops::cuda {

namespace {

// A block rotates all heads of one position.
template <class T, int kVec>
__global__ void rope_kernel(const T* x, const float* cos, const float* sin, T* y, int length, int heads,
                            int half, int64_t stride_batch, int64_t stride_length, int64_t stride_head,
                            int64_t offset, const int32_t* positions, float sign) {
  const int64_t row = blockIdx.x;
  const int64_t t = row % length;
  x += row / length * stride_batch + t * stride_length;
  y += row * heads * (2 * half);
  const int64_t angle = (positions ? max(positions[row], 0) : offset + t) * half;
  cos += angle;
  sin += angle;
  const int packs = half / kVec;
  for (int j = threadIdx.x; j < heads * packs; j += blockDim.x) {
    const int head = j / packs, i = j % packs * kVec;
    const T* from = x + head * stride_head + i;
    T* to = y + static_cast<int64_t>(head) * (2 * half) + i;
    float low[kVec], high[kVec], c[kVec], s[kVec];
    load(from, low);
    load(from + half, high);
    load(cos + i, c);
    load(sin + i, s);
#pragma unroll
    for (int k = 0; k < kVec; ++k) {
      const float turn = sign * s[k], a = low[k], b = high[k];
      low[k] = a * c[k] - b * turn;
      high[k] = b * c[k] + a * turn;
    }
    store(to, low);
    store(to + half, high);
  }
}

template <class T, int kVec>
cudaError_t rotate(const Rope& r, cudaStream_t stream) {
  const int threads = std::min(256, round_up(r.heads * r.half / kVec, 32));
  return start(rope_kernel<T, kVec>, static_cast<unsigned>(r.batch * r.length), threads, 0, stream,
               static_cast<const T*>(r.x), r.cos, r.sin, static_cast<T*>(r.y), static_cast<int>(r.length),
               static_cast<int>(r.heads), static_cast<int>(r.half), r.stride_batch, r.stride_length,
               r.stride_head, r.offset, r.positions, r.backwards ? -1.0f : 1.0f);
}

}  // namespace

cudaError_t launch(const Rope& r, cudaStream_t stream) {
  if (r.batch * r.length * r.heads * r.half == 0) return cudaSuccess;
  if (r.batch * r.length > INT_MAX || r.heads * r.half > INT_MAX / 2) return cudaErrorInvalidValue;
  return with_type(r.dtype, [&]<class T>(T) {
    constexpr int kVec = kWide<T>;
    const bool wide = r.half % kVec == 0 && r.stride_batch % kVec == 0 && r.stride_length % kVec == 0 &&
                      r.stride_head % kVec == 0 && aligned(r.x) && aligned(r.y) && aligned(r.cos) &&
                      aligned(r.sin);
    return wide ? rotate<T, kVec>(r, stream) : rotate<T, 1>(r, stream);
  });
}

}  // namespace tightloop::ops::cuda
