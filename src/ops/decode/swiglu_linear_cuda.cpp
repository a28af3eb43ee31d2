#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "cuda/operator.h"
#include "ops/few_rows_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

Tensor swiglu_linear(const Tensor& gate_up_in, const Tensor& weight) {
  const Guard guard(weight.device());
  const Tensor gate_up = dense(gate_up_in);
  auto shape = gate_up.sizes().vec();
  const int64_t I = weight.size(1), O = weight.size(0);
  shape.back() = O;
  Tensor y = at::empty(shape, gate_up.options());
  run(ops::cuda::FewRows{.dtype = dtype_of(gate_up),
                         .x = gate_up.const_data_ptr(),
                         .weight = weight.const_data_ptr(),
                         .bias = nullptr,
                         .y = y.mutable_data_ptr(),
                         .N = I ? gate_up.numel() / (2 * I) : 0,
                         .I = I,
                         .O = O,
                         .input = ops::cuda::FewRowsInput::kSwiglu});
  return y;
}

TIGHTLOOP_KERNELS(m) { m.impl("swiglu_linear", swiglu_linear); }

}  // namespace

}  // namespace tightloop::cuda
