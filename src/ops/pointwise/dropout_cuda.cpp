#include "ops/pointwise/dropout.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "cuda/operator.h"
#include "ops/pointwise/dropout_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

Tensor dropout(const Tensor& x_in, double p, const Tensor& random, int64_t site) {
  const Guard guard(x_in.device());
  const Tensor x = x_in.contiguous();
  Tensor y = at::empty(x.sizes(), x.options());
  run(ops::cuda::Dropout{.dtype = dtype_of(x),
                         .x = x.const_data_ptr(),
                         .y = y.mutable_data_ptr(),
                         .count = x.numel(),
                         .drop = drop_of(p, random, site)});
  return y;
}

TIGHTLOOP_KERNELS(m) { m.impl("dropout", dropout); }

}  // namespace

}  // namespace tightloop::cuda
