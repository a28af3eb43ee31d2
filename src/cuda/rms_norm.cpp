#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#include "cuda/operator.h"
#include "ops/rms_norm_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

std::tuple<Tensor, Tensor> forward(const Tensor& x_in, const Tensor& weight_in, double eps) {
  const Guard guard(x_in.device());
  const Tensor x = x_in.contiguous(), weight = weight_in.contiguous();
  const int64_t D = x.size(-1), rows = D ? x.numel() / D : 0;
  Tensor y = at::empty_like(x), scale = at::empty({rows}, x.options().dtype(at::kFloat));
  run(ops::cuda::RmsNormForward{.dtype = dtype_of(x),
                                .float_weight = weight.scalar_type() == at::kFloat,
                                .x = x.const_data_ptr(),
                                .weight = weight.const_data_ptr(),
                                .y = y.mutable_data_ptr(),
                                .scale = scale.mutable_data_ptr<float>(),
                                .rows = rows,
                                .D = D,
                                .eps = static_cast<float>(eps)});
  return {y, scale};
}

std::tuple<Tensor, Tensor> backward(const Tensor& dy_in, const Tensor& x_in, const Tensor& weight_in,
                                    const Tensor& scale) {
  const Guard guard(x_in.device());
  const Tensor dy = dy_in.contiguous(), x = x_in.contiguous(), weight = weight_in.contiguous();
  const int64_t D = x.size(-1), rows = D ? x.numel() / D : 0;
  Tensor dx = at::empty_like(x), dweight = at::empty_like(weight);
  Tensor partial = at::empty({ops::cuda::rms_norm_parts(rows, D), D}, x.options().dtype(at::kFloat));
  run(ops::cuda::RmsNormBackward{.dtype = dtype_of(x),
                                 .float_weight = weight.scalar_type() == at::kFloat,
                                 .dy = dy.const_data_ptr(),
                                 .x = x.const_data_ptr(),
                                 .weight = weight.const_data_ptr(),
                                 .scale = scale.const_data_ptr<float>(),
                                 .dx = dx.mutable_data_ptr(),
                                 .dweight = dweight.mutable_data_ptr(),
                                 .partial = partial.mutable_data_ptr<float>(),
                                 .rows = rows,
                                 .D = D});
  return {dx, dweight};
}

TIGHTLOOP_KERNELS(m) {
  m.impl("rms_norm_forward", forward);
  m.impl("rms_norm_backward", backward);
}

}  // namespace

}  // namespace tightloop::cuda
