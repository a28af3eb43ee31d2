#include "ops/kernel.cuh"
#include "ops/optim/muon_launch.h"

namespace tightloop::ops::cuda {

namespace {

constexpr int kThreads = 256, kVec = 4;

// A thread takes kCount neighbours of one row of the matrix of its block. It asks for them before it looks at
// the scalars, so that it waits once.

template <int kCount, class G, class X>
__global__ void __launch_bounds__(kThreads)
    muon_start_kernel(const __grid_constant__ MuonGradients table, float* momentum, X* x, int size,
                      const float* divisor, const float* mu, const float* skip) {
  const int at = (blockIdx.x * kThreads + threadIdx.x) * kCount;
  if (at >= size) return;
  const int64_t in_stack = static_cast<int64_t>(blockIdx.y) * size + at;
  float g[kCount], m[kCount], next[kCount];
  load(static_cast<const G*>(table.at[blockIdx.y]) + at, g);
  load(momentum + in_stack, m);
  const float divide = 1 / *divisor, beta = *mu;
  const bool keep = *skip == 0;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    g[k] *= divide;
    m[k] += (1 - beta) * (g[k] - m[k]);
    next[k] = keep ? g[k] + beta * (m[k] - g[k]) : 0;  // a NaN would reach the variance
  }
  if (keep) store(momentum + in_stack, m);
  store(x + in_stack, next);
}

template <int kCount, class X>
__global__ void __launch_bounds__(kThreads)
    muon_end_kernel(const __grid_constant__ MuonWeights table, const X* x, const float* scale, bool by_row,
                    int rows, int columns, float lr, float decay, const float* lr_scale,
                    const float* decay_scale, const float* skip) {
  const int at = (blockIdx.x * kThreads + threadIdx.x) * kCount;
  if (at >= rows * columns) return;
  const int64_t matrix = blockIdx.y;
  float* master = table.masters[matrix] + at;
  float u[kCount], w[kCount], s[kCount];
  load(x + matrix * rows * columns + at, u);
  load(master, w);
  if (by_row) {
    const float of_row = scale[matrix * rows + at / columns];
#pragma unroll
    for (int k = 0; k < kCount; ++k) s[k] = of_row;
  } else {
    load(scale + matrix * columns + at % columns, s);
  }
  if (*skip != 0) return;
  lr *= *lr_scale, decay *= *decay_scale;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    u[k] *= s[k];
    if (u[k] * w[k] >= 0) u[k] += decay * w[k];
    w[k] -= lr * u[k];
  }
  store(master, w);
  if (table.values[matrix]) store(static_cast<X*>(table.values[matrix]) + at, w);
}

template <class Call>
dim3 grid_of(const Call& call, int count) {
  return dim3((call.rows * call.columns + kThreads * count - 1) / (kThreads * count), call.matrices);
}

// body(an integral constant): how many neighbours move together.
template <class Body>
cudaError_t with_count(bool wide, Body&& body) {
  return wide ? body(std::integral_constant<int, kVec>{}) : body(std::integral_constant<int, 1>{});
}

}  // namespace

cudaError_t launch(const MuonStart& call, cudaStream_t stream) {
  bool wide = call.columns % kVec == 0 && aligned(call.momentum) && aligned(call.to);
  for (int i = 0; i < call.matrices; ++i) wide = wide && aligned(call.table->at[i]);
  return with_type(call.gradients, [&]<class G>(G) {
    return with_type(call.x, [&]<class X>(X) {
      return with_count(wide, [&](auto count) {
        return start(muon_start_kernel<count(), G, X>, grid_of(call, count()), kThreads, 0, stream,
                     *call.table, call.momentum, static_cast<X*>(call.to), call.rows * call.columns,
                     call.divisor, call.mu, call.skip);
      });
    });
  });
}

cudaError_t launch(const MuonEnd& call, cudaStream_t stream) {
  bool wide = call.columns % kVec == 0 && aligned(call.from) && aligned(call.scale);
  for (int i = 0; i < call.matrices; ++i)
    wide = wide && aligned(call.table->masters[i]) && aligned(call.table->values[i]);
  return with_type(call.x, [&]<class X>(X) {
    return with_count(wide, [&](auto count) {
      return start(muon_end_kernel<count(), X>, grid_of(call, count()), kThreads, 0, stream, *call.table,
                   static_cast<const X*>(call.from), call.scale, call.by_row, call.rows, call.columns,
                   call.lr, call.decay, call.lr_scale, call.decay_scale, call.skip);
    });
  });
}

}  // namespace tightloop::ops::cuda
