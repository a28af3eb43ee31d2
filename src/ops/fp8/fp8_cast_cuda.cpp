#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <tuple>

#include "cuda/operator.h"
#include "ops/fp8/fp8_cast_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

Tensor absolute_max(const Tensor& x) {
  const Guard guard(x.device());
  Tensor most = at::zeros({}, x.options().dtype(at::kFloat));
  run(ops::cuda::AbsoluteMax{.dtype = dtype_of(x),
                             .x = x.const_data_ptr(),
                             .count = x.numel(),
                             .most = most.mutable_data_ptr<float>()});
  return most;
}

std::tuple<Tensor, Tensor, Tensor> fp8_cast(const Tensor& x, const Tensor& most, bool e5m2, bool rows,
                                            bool columns) {
  const Guard guard(x.device());
  const int64_t R = x.size(0), C = x.size(1);
  const auto options = x.options().dtype(e5m2 ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn);
  Tensor by_rows = at::empty(rows ? std::vector<int64_t>{R, C} : std::vector<int64_t>{0}, options),
         by_columns = at::empty(columns ? std::vector<int64_t>{C, R} : std::vector<int64_t>{0}, options),
         scale = at::empty({}, x.options().dtype(at::kFloat));
  run(ops::cuda::Fp8Cast{
      .dtype = dtype_of(x),
      .e5m2 = e5m2,
      .x = x.const_data_ptr(),
      .rows = R,
      .columns = C,
      .most = most.const_data_ptr<float>(),
      .by_rows = rows ? static_cast<uint8_t*>(by_rows.mutable_data_ptr()) : nullptr,
      .by_columns = columns ? static_cast<uint8_t*>(by_columns.mutable_data_ptr()) : nullptr,
      .scale = scale.mutable_data_ptr<float>()});
  return {by_rows, by_columns, scale};
}

TIGHTLOOP_KERNELS(m) {
  m.impl("absolute_max", absolute_max);
  m.impl("fp8_cast", fp8_cast);
}

}  // namespace

}  // namespace tightloop::cuda
