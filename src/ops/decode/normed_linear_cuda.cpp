#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "cuda/operator.h"
#include "ops/few_rows_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

std::tuple<Tensor, Tensor> normed_linear(const Tensor& x_in, const Optional& branch_in,
                                         const Optional& norm_weight_in, double eps, const Tensor& weight,
                                         const Optional& bias_in) {
  const Guard guard(weight.device());
  const Tensor x = dense(x_in), branch = dense(branch_in), norm_weight = dense(norm_weight_in),
               bias = dense(bias_in);
  auto shape = x.sizes().vec();
  const int64_t I = shape.back(), O = weight.size(0);
  shape.back() = O;
  Tensor sum = branch.defined() ? at::empty_like(x) : Tensor(), y = at::empty(shape, x.options());
  const bool float_weight = norm_weight.defined() && norm_weight.scalar_type() == at::kFloat;
  run(ops::cuda::FewRows{.dtype = dtype_of(x),
                         .x = x.const_data_ptr(),
                         .weight = weight.const_data_ptr(),
                         .bias = data_of(bias),
                         .y = y.mutable_data_ptr(),
                         .N = I ? x.numel() / I : 0,
                         .I = I,
                         .O = O,
                         .input = ops::cuda::FewRowsInput::kNormed,
                         .norm = {.branch = data_of(branch),
                                  .weight = data_of(norm_weight),
                                  .sum = mutable_data_of(sum),
                                  .float_weight = float_weight,
                                  .eps = static_cast<float>(eps)}});
  return {sum, y};
}

TIGHTLOOP_KERNELS(m) { m.impl("normed_linear", normed_linear); }

}  // namespace

}  // namespace tightloop::cuda
