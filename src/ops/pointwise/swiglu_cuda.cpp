#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "cuda/operator.h"
#include "ops/fp8/largest.h"
#include "ops/pointwise/swiglu_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

Tensor swiglu_forward(const Tensor& gate_up_in) {
  const Guard guard(gate_up_in.device());
  const Tensor gate_up = gate_up_in.contiguous();
  const int64_t F = gate_up.size(-1) / 2;
  auto shape = gate_up.sizes().vec();
  shape.back() = F;
  Tensor y = at::empty(shape, gate_up.options());
  const Tensor most = ops::note_largest(y);
  run(ops::cuda::SwigluForward{.dtype = dtype_of(gate_up),
                               .gate_up = gate_up.const_data_ptr(),
                               .y = y.mutable_data_ptr(),
                               .most = floats_of(most),
                               .rows = F ? y.numel() / F : 0,
                               .F = F});
  return y;
}

Tensor swiglu_backward(const Tensor& dy_in, const Tensor& gate_up_in) {
  const Guard guard(gate_up_in.device());
  const Tensor dy = dy_in.contiguous(), gate_up = gate_up_in.contiguous();
  const int64_t F = gate_up.size(-1) / 2;
  Tensor dgate_up = at::empty_like(gate_up);
  const Tensor most = ops::note_largest(dgate_up);
  run(ops::cuda::SwigluBackward{.dtype = dtype_of(gate_up),
                                .dy = dy.const_data_ptr(),
                                .gate_up = gate_up.const_data_ptr(),
                                .dgate_up = dgate_up.mutable_data_ptr(),
                                .most = floats_of(most),
                                .rows = F ? dy.numel() / F : 0,
                                .F = F});
  return dgate_up;
}

TIGHTLOOP_KERNELS(m) {
  m.impl("swiglu_forward", swiglu_forward);
  m.impl("swiglu_backward", swiglu_backward);
}

}  // namespace

}  // namespace tightloop::cuda
