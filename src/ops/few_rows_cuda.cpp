#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>

#include "cuda/operator.h"
#include "ops/few_rows_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

Tensor few_rows_linear(const Tensor& x_in, const Tensor& weight, const std::optional<Tensor>& bias_in) {
  const Guard guard(weight.device());
  const Tensor x = dense(x_in), bias = dense(bias_in);
  auto shape = x.sizes().vec();
  const int64_t I = shape.back(), O = weight.size(0);
  shape.back() = O;
  Tensor y = at::empty(shape, x.options());
  run(ops::cuda::FewRows{.dtype = dtype_of(x),
                         .x = x.const_data_ptr(),
                         .weight = weight.const_data_ptr(),
                         .bias = data_of(bias),
                         .y = y.mutable_data_ptr(),
                         .N = I ? x.numel() / I : 0,
                         .I = I,
                         .O = O});
  return y;
}

TIGHTLOOP_KERNELS(m) { m.impl("few_rows_linear", few_rows_linear); }

}  // namespace

}  // namespace tightloop::cuda
