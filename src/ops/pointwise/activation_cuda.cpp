#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#include "cuda/operator.h"
#include "ops/fp8/largest.h"
#include "ops/pointwise/activation_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

Tensor activation_forward(const Tensor& x, const Optional& bias, int64_t kind, double p,
                          const Optional& random, int64_t site) {
  const Guard guard(x.device());
  const int64_t D = x.size(-1);
  Tensor y = at::empty_like(x);
  const Tensor most = ops::note_largest(y);
  run(ops::cuda::ActivationForward{.dtype = dtype_of(x),
                                   .kind = static_cast<ops::ActivationKind>(kind),
                                   .x = x.const_data_ptr(),
                                   .bias = data_of(bias),
                                   .y = y.mutable_data_ptr(),
                                   .most = floats_of(most),
                                   .rows = D ? x.numel() / D : 0,
                                   .D = D,
                                   .drop = drop_of(p, random, site)});
  return y;
}

std::tuple<Tensor, Tensor> activation_backward(const Tensor& dy_in, const Tensor& x, const Optional& bias,
                                               int64_t kind, double p, const Optional& random, int64_t site) {
  const Guard guard(x.device());
  const int64_t D = x.size(-1), rows = D ? x.numel() / D : 0;
  const Tensor dy = dense(dy_in);
  Tensor dx = at::empty_like(x), dbias, partial;
  if (bias) {
    dbias = at::empty_like(*bias);
    partial = at::empty({ops::cuda::activation_parts(rows, D), D}, x.options().dtype(at::kFloat));
  }
  const Tensor most = ops::note_largest(dx);
  run(ops::cuda::ActivationBackward{.dtype = dtype_of(x),
                                    .kind = static_cast<ops::ActivationKind>(kind),
                                    .dy = dy.const_data_ptr(),
                                    .x = x.const_data_ptr(),
                                    .bias = data_of(bias),
                                    .dx = dx.mutable_data_ptr(),
                                    .dbias = mutable_data_of(dbias),
                                    .most = floats_of(most),
                                    .partial = bias ? partial.mutable_data_ptr<float>() : nullptr,
                                    .rows = rows,
                                    .D = D,
                                    .drop = drop_of(p, random, site)});
  return {dx, dbias};
}

TIGHTLOOP_KERNELS(m) {
  m.impl("activation_forward", activation_forward);
  m.impl("activation_backward", activation_backward);
}

}  // namespace

}  // namespace tightloop::cuda
