#include "ops/decode/swiglu_linear.h"

#include <ATen/ops/linear.h>
#include <torch/library.h>

#include "ops/few_rows.h"
#include "ops/linear.h"
#include "ops/operator.h"
#include "ops/pointwise/swiglu.h"

namespace tightloop::ops {

namespace {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(tightloop, m) { m.def("swiglu_linear(Tensor gate_up, Tensor weight) -> Tensor"); }

const auto& swiglu_linear_op() {
  static const auto op = find_operator<Tensor(const Tensor&, const Tensor&)>("tightloop::swiglu_linear");
  return op;
}

}  // namespace

Tensor swiglu_linear(const Tensor& gate_up, const Tensor& weight) {
  if (few_made_rows_take(gate_up, weight, {}) && gate_up.size(-1) == 2 * weight.size(1) &&
      registered(swiglu_linear_op(), gate_up)) {
    at::AutoDispatchBelowADInplaceOrView below;
    return swiglu_linear_op().call(gate_up, weight);
  }
  return ops::linear(swiglu(gate_up), weight);
}

Tensor swiglu_linear_plain(const Tensor& gate_up, const Tensor& weight) {
  return at::linear(swiglu_plain(gate_up), weight);
}

}  // namespace tightloop::ops
