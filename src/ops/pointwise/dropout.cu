#include <climits>

#include "ops/pointwise/dropout_launch.h"
#include "ops/kernel.cuh"
#include "ops/philox.cuh"

namespace tightloop::ops::cuda {

namespace {

constexpr int kThreads = 256;

// A thread takes kWide<T> elements, which are four or eight: whole counters.
template <class T, bool kAligned>
__global__ void __launch_bounds__(kThreads) dropout_kernel(const Dropout c) {
  constexpr int kVec = kWide<T>;
  const T* x = static_cast<const T*>(c.x);
  T* y = static_cast<T*>(c.y);
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kVec;
  if (at >= c.count) return;
  const Dropper drop(c.drop);
  if (kAligned && at + kVec <= c.count) {
    float v[kVec];
    load(x + at, v);
    drop.apply(at, v);
    store(y + at, v);
    return;
  }
  float v[kVec] = {};
#pragma unroll
  for (int k = 0; k < kVec; ++k)
    if (at + k < c.count) v[k] = to_float(x[at + k]);
  drop.apply(at, v);
#pragma unroll
  for (int k = 0; k < kVec; ++k)
    if (at + k < c.count) y[at + k] = from_float<T>(v[k]);
}

}  // namespace

cudaError_t launch(const Dropout& c, cudaStream_t stream) {
  if (c.count == 0) return cudaSuccess;
  return with_type(c.dtype, [&]<class T>(T) {
    const int64_t each = kThreads * kWide<T>, blocks = (c.count + each - 1) / each;
    if (blocks > INT_MAX) return cudaErrorInvalidValue;
    const auto kernel = aligned(c.x) && aligned(c.y) ? dropout_kernel<T, true> : dropout_kernel<T, false>;
    return start(kernel, static_cast<unsigned>(blocks), kThreads, 0, stream, c);
  });
}

}  // namespace tightloop::ops::cuda
