#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <tuple>

#include "cuda/operator.h"
#include "ops/pointwise/expert_rows_launch.h"

namespace tightloop::cuda {

namespace {

using at::Tensor;

const float* weights_or_null(const std::optional<Tensor>& x) { return x ? x->const_data_ptr<float>() : nullptr; }

std::tuple<Tensor, Tensor> expert_rows_spread(const Tensor& x_in, const Tensor& place,
                                              const std::optional<Tensor>& weights,
                                              const std::optional<Tensor>& rows) {
  const Guard guard(x_in.device());
  const Tensor x = dense(x_in);
  Tensor spread = at::empty({place.numel(), x.size(1)}, x.options());
  Tensor dots = rows ? at::empty(place.sizes(), x.options().dtype(at::kFloat)) : Tensor();
  run(ops::cuda::SpreadRows{.dtype = dtype_of(x),
                            .x = x.const_data_ptr(),
                            .place = place.const_data_ptr<int64_t>(),
                            .weights = weights_or_null(weights),
                            .rows = data_of(rows),
                            .spread = spread.mutable_data_ptr(),
                            .dots = rows ? dots.mutable_data_ptr<float>() : nullptr,
                            .N = x.size(0),
                            .P = place.size(1),
                            .D = x.size(1)});
  return {spread, dots};
}

Tensor expert_rows_gather(const Tensor& rows_in, const Tensor& place, const std::optional<Tensor>& weights) {
  const Guard guard(rows_in.device());
  const Tensor rows = dense(rows_in);
  Tensor y = at::empty({place.size(0), rows.size(1)}, rows.options());
  run(ops::cuda::GatherRows{.dtype = dtype_of(rows),
                            .rows = rows.const_data_ptr(),
                            .place = place.const_data_ptr<int64_t>(),
                            .weights = weights_or_null(weights),
                            .y = y.mutable_data_ptr(),
                            .N = place.size(0),
                            .P = place.size(1),
                            .D = rows.size(1)});
  return y;
}

void expert_rows_clear(const Tensor& matrices, const Tensor& ends) {
  const Guard guard(matrices.device());
  const int64_t experts = matrices.size(0);
  run(ops::cuda::ClearIdle{.matrices = matrices.mutable_data_ptr(),
                           .ends = ends.const_data_ptr<int>(),
                           .experts = experts,
                           .bytes = experts == 0 ? 0 : matrices.numel() / experts * matrices.element_size()});
}

TIGHTLOOP_KERNELS(m) {
  m.impl("expert_rows_spread", expert_rows_spread);
  m.impl("expert_rows_gather", expert_rows_gather);
  m.impl("expert_rows_clear", expert_rows_clear);
}

}  // namespace

}  // namespace tightloop::cuda
