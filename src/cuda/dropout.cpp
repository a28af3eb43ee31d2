#include "ops/dropout.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "cuda/operator.h"
#include "ops/dropout_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

Tensor dropout(const Tensor& x_in, double p, const Tensor& random, int64_t site) {
  const c10::cuda::CUDAGuard guard(x_in.device());
  const Tensor x = x_in.contiguous();
  Tensor y = at::empty(x.sizes(), x.options());
  run(ops::cuda::Dropout{.dtype = dtype_of(x),
                         .x = x.const_data_ptr(),
                         .y = y.mutable_data_ptr(),
                         .random = random.const_data_ptr<int64_t>(),
                         .site = site,
                         .count = x.numel(),
                         .threshold = ops::dropout_threshold(p),
                         .scale = static_cast<float>(1 / (1 - p))});
  return y;
}

TORCH_LIBRARY_IMPL(tightloop, CUDA, m) { m.impl("dropout", dropout); }

}  // namespace

}  // namespace tightloop::cuda
