#include <cmath>

#include "ops/optim/adamw_launch.h"
#include "ops/kernel.cuh"

namespace tightloop::ops::cuda {

namespace {

constexpr int kThreads = 256, kVec = 4;

struct Step {
  float beta1, beta2, eps, divide, step, shrink, root;
};

template <int kCount, class G, class V>
__device__ void update(const AdamwTable& table, int tensor, int64_t at, const Step& s) {
  float g[kCount], w[kCount], m[kCount], v[kCount];
  load(static_cast<const G*>(table.gradients[tensor]) + at, g);
  load(table.masters[tensor] + at, w);
  load(table.first[tensor] + at, m);
  load(table.second[tensor] + at, v);
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const float gradient = g[k] * s.divide;
    m[k] += (1 - s.beta1) * (gradient - m[k]);
    v[k] += (1 - s.beta2) * (gradient * gradient - v[k]);
    w[k] = w[k] * s.shrink - s.step * m[k] / (sqrtf(v[k]) * s.root + s.eps);
  }
  store(table.masters[tensor] + at, w);
  store(table.first[tensor] + at, m);
  store(table.second[tensor] + at, v);
  if (table.values[tensor]) store(static_cast<V*>(table.values[tensor]) + at, w);
}

template <class G, class V>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const __grid_constant__ AdamwTable table, float beta1, float beta2, float eps,
                 const float* control) {
  if (control[3] != 0) return;
  const int tensor = tensor_of(table.map, blockIdx.x);
  // Powers in double: beta2^count is close to 1 at first, and what counts is the difference.
  const double count = control[2], lr = static_cast<double>(control[0]) * table.rate[tensor];
  const Step s{beta1,
               beta2,
               eps,
               1 / control[1],
               static_cast<float>(lr / (1 - pow(static_cast<double>(beta1), count))),
               static_cast<float>(1 - lr * table.decay[tensor]),
               static_cast<float>(1 / sqrt(1 - pow(static_cast<double>(beta2), count)))};
  const int64_t begin = (blockIdx.x - table.map.first_block[tensor]) * kPiece;
  const int64_t end = min(begin + kPiece, table.sizes[tensor]);
  const int64_t whole = begin + (end - begin) / kVec * kVec;
  for (int64_t at = begin + threadIdx.x * kVec; at < whole; at += kThreads * kVec)
    update<kVec, G, V>(table, tensor, at, s);
  if (whole + threadIdx.x < end) update<1, G, V>(table, tensor, whole + threadIdx.x, s);
}

}  // namespace

cudaError_t launch(const Adamw& call, cudaStream_t stream) {
  if (call.table->map.blocks() == 0) return cudaSuccess;
  return with_type(call.gradients, [&]<class G>(G) {
    return with_type(call.values, [&]<class V>(V) {
      return start(adamw_kernel<G, V>, call.table->map.blocks(), kThreads, 0, stream, *call.table, call.beta1,
                   call.beta2, call.eps, call.control);
    });
  });
}

}  // namespace tightloop::ops::cuda
