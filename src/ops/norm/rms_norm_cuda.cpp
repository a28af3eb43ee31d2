#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#include "cuda/operator.h"
#include "ops/fp8/largest.h"
#include "ops/norm/rms_norm_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

/// Holds what a launch's scales point to. The sides' are single numbers, on the host or the device.
struct NormScales {
  NormScales(const Optional& x_scale, const Optional& y_scale, const Optional& weight_in)
      : x(x_scale.value_or(Tensor())), y(y_scale.value_or(Tensor())), weight(dense(weight_in)) {}
  ops::cuda::RmsNormScales pointers() const {
    return {.x = data_of(x),
            .y = data_of(y),
            .weight = data_of(weight),
            .float_sides = x.defined() && x.scalar_type() == at::kFloat,
            .float_weight = weight.defined() && weight.scalar_type() == at::kFloat};
  }
  Tensor x, y, weight;
};

std::tuple<Tensor, Tensor, Tensor> add_rms_norm_forward(const Tensor& x_in, const Optional& y_in,
                                                        const Optional& branch_in, const Optional& x_scale,
                                                        const Optional& y_scale, const Optional& weight,
                                                        double eps) {
  const Guard guard(x_in.device());
  const Tensor x = dense(x_in), y = dense(y_in), branch = dense(branch_in);
  const NormScales scales(x_scale, y_scale, weight);
  const int64_t D = x.size(-1), rows = D ? x.numel() / D : 0;
  Tensor sum = y.defined() ? at::empty_like(x) : Tensor(), normed = at::empty_like(x),
         scale = at::empty({rows}, x.options().dtype(at::kFloat));
  const Tensor most = ops::note_largest(normed);
  run(ops::cuda::RmsNormForward{.dtype = dtype_of(x),
                                .scales = scales.pointers(),
                                .x = data_of(x),
                                .y = data_of(y),
                                .branch = data_of(branch),
                                .sum = mutable_data_of(sum),
                                .normed = normed.mutable_data_ptr(),
                                .scale = scale.mutable_data_ptr<float>(),
                                .most = floats_of(most),
                                .rows = rows,
                                .D = D,
                                .eps = static_cast<float>(eps)});
  return {sum, normed, scale};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> add_rms_norm_backward(
    const Optional& dsum_in, const Optional& dnormed_in, const Tensor& sum_in, const Optional& x_in,
    const Optional& dx_before_in, const Optional& x_scale, const Optional& y_scale, const Optional& weight_in,
    const Tensor& scale) {
  const Guard guard(sum_in.device());
  const Tensor dsum = dense(dsum_in), dnormed = dense(dnormed_in), sum = dense(sum_in), x = dense(x_in),
               dx_before = dense(dx_before_in);
  const NormScales scales(x_scale, y_scale, weight_in);
  const int64_t D = sum.size(-1), rows = D ? sum.numel() / D : 0;
  const bool scaled = scales.x.defined();
  Tensor dx = at::empty_like(sum), dy = scaled ? at::empty_like(sum) : dx,
         dsides = scaled ? at::empty({2}, scales.x.options()) : Tensor(),
         dweight = scales.weight.defined() ? at::empty_like(scales.weight) : Tensor();
  Tensor partial = at::empty({ops::cuda::rms_norm_parts(rows), D + 2}, sum.options().dtype(at::kFloat));
  const Tensor most = ops::note_largest(dy);
  run(ops::cuda::RmsNormBackward{.dtype = dtype_of(sum),
                                 .scales = scales.pointers(),
                                 .dsum = data_of(dsum),
                                 .dnormed = data_of(dnormed),
                                 .sum = data_of(sum),
                                 .x = data_of(x),
                                 .dx_before = data_of(dx_before),
                                 .scale = scale.const_data_ptr<float>(),
                                 .dx = dx.mutable_data_ptr(),
                                 .dy = dy.mutable_data_ptr(),
                                 .dsides = mutable_data_of(dsides),
                                 .dweight = mutable_data_of(dweight),
                                 .most = floats_of(most),
                                 .partial = partial.mutable_data_ptr<float>(),
                                 .rows = rows,
                                 .D = D});
  return {dx, dy, dsides, dweight};
}

TIGHTLOOP_KERNELS(m) {
  m.impl("add_rms_norm_forward", add_rms_norm_forward);
  m.impl("add_rms_norm_backward", add_rms_norm_backward);
}

}  // namespace

}  // namespace tightloop::cuda
