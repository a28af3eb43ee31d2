#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#include "cuda/operator.h"
#include "ops/pointwise/gated_add_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

Tensor gated_add_forward(const Tensor& x, const Tensor& open, const Tensor& extra, double scale) {
  const Guard guard(x.device());
  Tensor y = at::empty(x.sizes(), x.options());
  run(ops::cuda::GatedAddForward{.dtype = dtype_of(x),
                                 .x = x.const_data_ptr(),
                                 .open = open.const_data_ptr(),
                                 .extra = extra.const_data_ptr(),
                                 .y = y.mutable_data_ptr(),
                                 .rows = x.size(0) * x.size(1),
                                 .K = x.size(2),
                                 .S = x.size(3),
                                 .stride = x.stride(1),
                                 .scale = static_cast<float>(scale)});
  return y;
}

std::tuple<Tensor, Tensor> gated_add_backward(const Tensor& dy_in, const Tensor& open, const Tensor& extra,
                                              double scale) {
  const Guard guard(extra.device());
  const Tensor dy = dense(dy_in);
  Tensor dopen = at::empty_like(open), dextra = at::empty_like(extra);
  run(ops::cuda::GatedAddBackward{.dtype = dtype_of(extra),
                                  .dy = dy.const_data_ptr(),
                                  .open = open.const_data_ptr(),
                                  .extra = extra.const_data_ptr(),
                                  .dopen = dopen.mutable_data_ptr(),
                                  .dextra = dextra.mutable_data_ptr(),
                                  .rows = extra.size(0) * extra.size(1),
                                  .K = extra.size(2),
                                  .S = extra.size(3),
                                  .scale = static_cast<float>(scale)});
  return {dopen, dextra};
}

TIGHTLOOP_KERNELS(m) {
  m.impl("gated_add_forward", gated_add_forward);
  m.impl("gated_add_backward", gated_add_backward);
}

}  // namespace

}  // namespace tightloop::cuda
