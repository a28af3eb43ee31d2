#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>

#include "cuda/operator.h"
#include "ops/quantized_linear_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

Tensor quantized_linear(const Tensor& x_in, const Tensor& weight, const std::optional<Tensor>& bias_in) {
  const Guard guard(weight.device());
  const Tensor x = dense(x_in), bias = dense(bias_in);
  auto shape = x.sizes().vec();
  const int64_t I = shape.back(), O = weight.size(0);
  shape.back() = O;
  Tensor y = at::empty(shape, x.options());
  run(ops::cuda::QuantizedLinear{.dtype = dtype_of(x),
                                 .int4 = weight.scalar_type() == at::kByte,
                                 .x = x.const_data_ptr(),
                                 .weight = weight.const_data_ptr(),
                                 .bias = data_of(bias),
                                 .y = y.mutable_data_ptr(),
                                 .N = I ? x.numel() / I : 0,
                                 .I = I,
                                 .O = O});
  return y;
}

Tensor dequantize(const Tensor& weight, int64_t inputs, at::ScalarType dtype) {
  const Guard guard(weight.device());
  Tensor out = at::empty({weight.size(0), inputs}, weight.options().dtype(dtype));
  run(ops::cuda::Dequantize{.dtype = dtype_of(out),
                            .int4 = weight.scalar_type() == at::kByte,
                            .weight = weight.const_data_ptr(),
                            .out = out.mutable_data_ptr(),
                            .I = inputs,
                            .O = weight.size(0)});
  return out;
}

TIGHTLOOP_KERNELS(m) {
  m.impl("quantized_linear", quantized_linear);
  m.impl("dequantize", dequantize);
}

}  // namespace

}  // namespace tightloop::cuda
