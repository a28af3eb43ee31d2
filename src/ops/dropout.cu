#include <climits>

#include "ops/dropout_launch.h"
#include "ops/kernel.cuh"

namespace tightloop::ops::cuda {

namespace {

constexpr int kThreads = 256;

// Philox 4x32-10, as core/random.h has it.
__device__ inline uint4 philox(uint64_t key, uint64_t counter, uint64_t site) {
  uint4 c{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), static_cast<uint32_t>(site),
          static_cast<uint32_t>(site >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
    const uint32_t high0 = __umulhi(kMultiplier0, c.x), high1 = __umulhi(kMultiplier1, c.z);
    c = {high1 ^ c.y ^ k0, kMultiplier1 * c.z, high0 ^ c.w ^ k1, kMultiplier0 * c.x};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

// A thread takes kWide<T> elements, which are four or eight: whole counters.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kThreads) dropout_kernel(const Dropout c) {
  constexpr int kVec = kWide<T>;
  const T* x = static_cast<const T*>(c.x);
  T* y = static_cast<T*>(c.y);
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVec;
  if (at >= c.count) return;
  const auto key = static_cast<uint64_t>(*c.random);
  uint32_t words[kVec];
#pragma unroll
  for (int k = 0; k < kVec; k += 4) {
    const uint4 four = philox(key, static_cast<uint64_t>(at + k) / 4, static_cast<uint64_t>(c.site));
    words[k] = four.x, words[k + 1] = four.y, words[k + 2] = four.z, words[k + 3] = four.w;
  }
  if (kAligned && at + kVec <= c.count) {
    float v[kVec];
    load(x + at, v);
#pragma unroll
    for (int k = 0; k < kVec; ++k) v[k] = words[k] >= c.threshold ? v[k] * c.scale : 0.0f;
    store(y + at, v);
    return;
  }
#pragma unroll
  for (int k = 0; k < kVec; ++k) {
    if (at + k < c.count)
      y[at + k] = from_float<T>(words[k] >= c.threshold ? to_float(x[at + k]) * c.scale : 0.0f);
  }
}

}  // namespace

cudaError_t launch(const Dropout& c, cudaStream_t stream) {
  if (c.count == 0) return cudaSuccess;
  return with_type(c.dtype, [&]<class T>(T) {
    const int64_t each = kThreads * kWide<T>, blocks = (c.count + each - 1) / each;
    if (blocks > INT_MAX) return cudaErrorInvalidValue;
    if (aligned(c.x) && aligned(c.y))
      dropout_kernel<T, true><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(c);
    else
      dropout_kernel<T, false><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(c);
    return cudaGetLastError();
  });
}

}  // namespace tightloop::ops::cuda
