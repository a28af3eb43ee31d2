#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#include "cuda/operator.h"
#include "ops/fp8/largest.h"
#include "ops/norm/residual_norm_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

std::tuple<Tensor, Tensor, Tensor, Tensor> residual_norm_forward(const Tensor& x, const Optional& y,
                                                                 const Optional& y_bias, const Tensor& weight,
                                                                 const Tensor& bias, double eps, double p,
                                                                 const Optional& random, int64_t site) {
  const Guard guard(x.device());
  const int64_t D = x.size(-1), rows = D ? x.numel() / D : 0;
  const auto numbers = x.options().dtype(at::kFloat);
  Tensor sum = y ? at::empty_like(x) : Tensor(), normed = at::empty_like(x),
         mean = at::empty({rows}, numbers), scale = at::empty({rows}, numbers);
  const Tensor most = ops::note_largest(normed);
  run(ops::cuda::ResidualNormForward{.dtype = dtype_of(x),
                                     .x = x.const_data_ptr(),
                                     .y = data_of(y),
                                     .y_bias = data_of(y_bias),
                                     .weight = weight.const_data_ptr(),
                                     .bias = bias.const_data_ptr(),
                                     .sum = mutable_data_of(sum),
                                     .normed = normed.mutable_data_ptr(),
                                     .mean = mean.mutable_data_ptr<float>(),
                                     .scale = scale.mutable_data_ptr<float>(),
                                     .most = floats_of(most),
                                     .rows = rows,
                                     .D = D,
                                     .eps = static_cast<float>(eps),
                                     .drop = drop_of(p, random, site)});
  return {sum, normed, mean, scale};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> residual_norm_backward(
    const Optional& dsum_in, const Optional& dnormed_in, const Tensor& sum, const Tensor& weight,
    const Tensor& mean, const Tensor& scale, bool added, double p, const Optional& random, int64_t site) {
  const Guard guard(sum.device());
  const int64_t D = sum.size(-1), rows = D ? sum.numel() / D : 0;
  const Tensor dsum = dense(dsum_in), dnormed = dense(dnormed_in);
  Tensor dx = at::empty_like(sum), dy = p > 0 ? at::empty_like(sum) : dx;
  Tensor dy_bias = added ? at::empty_like(weight) : Tensor(), dweight = at::empty_like(weight),
         dbias = at::empty_like(weight);
  Tensor partial = at::empty({ops::cuda::residual_norm_parts(rows), 3 * D}, sum.options().dtype(at::kFloat));
  const Tensor most = ops::note_largest(dy);
  run(ops::cuda::ResidualNormBackward{.dtype = dtype_of(sum),
                                      .dsum = data_of(dsum),
                                      .dnormed = data_of(dnormed),
                                      .sum = sum.const_data_ptr(),
                                      .weight = weight.const_data_ptr(),
                                      .mean = mean.const_data_ptr<float>(),
                                      .scale = scale.const_data_ptr<float>(),
                                      .dx = dx.mutable_data_ptr(),
                                      .dy = dy.mutable_data_ptr(),
                                      .dy_bias = mutable_data_of(dy_bias),
                                      .dweight = dweight.mutable_data_ptr(),
                                      .dbias = dbias.mutable_data_ptr(),
                                      .most = floats_of(most),
                                      .partial = partial.mutable_data_ptr<float>(),
                                      .rows = rows,
                                      .D = D,
                                      .drop = drop_of(p, random, site)});
  return {dx, dy, dy_bias, dweight, dbias};
}

TIGHTLOOP_KERNELS(m) {
  m.impl("residual_norm_forward", residual_norm_forward);
  m.impl("residual_norm_backward", residual_norm_backward);
}

}  // namespace

}  // namespace tightloop::cuda
