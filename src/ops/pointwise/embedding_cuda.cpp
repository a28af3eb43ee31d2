#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "cuda/operator.h"
#include "ops/pointwise/embedding_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

Tensor embedding_backward(const Tensor& dy_in, const Tensor& sorted, const Tensor& positions, int64_t V) {
  const Guard guard(dy_in.device());
  const int64_t N = sorted.numel(), D = dy_in.size(-1);
  const Tensor dy = dense(dy_in);
  Tensor dweight = at::zeros({V, D}, dy.options());
  Tensor partial = at::empty({ops::cuda::embedding_windows(N), 2, D}, dy.options().dtype(at::kFloat));
  run(ops::cuda::EmbeddingBackward{.dtype = dtype_of(dy),
                                   .dy = dy.const_data_ptr(),
                                   .ids = sorted.const_data_ptr<int32_t>(),
                                   .positions = positions.const_data_ptr<int64_t>(),
                                   .dweight = dweight.mutable_data_ptr(),
                                   .partial = partial.mutable_data_ptr<float>(),
                                   .N = N,
                                   .D = D,
                                   .V = V});
  return dweight;
}

TIGHTLOOP_KERNELS(m) { m.impl("embedding_backward", embedding_backward); }

}  // namespace

}  // namespace tightloop::cuda
