#include "ops/decode/normed_linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <torch/library.h>

#include <tuple>

#include "ops/few_rows.h"
#include "ops/linear.h"
#include "ops/norm/rms_norm.h"
#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def(
      "normed_linear(Tensor x, Tensor? branch, Tensor? norm_weight, float eps, Tensor weight, Tensor? bias)"
      " -> (Tensor sum, Tensor product)");
}
using NormedLinear = std::tuple<Tensor, Tensor>(const Tensor&, const Optional&, const Optional&, double,
                                                const Tensor&, const Optional&);

const auto& normed_linear_op() {
  static const auto op = find_operator<NormedLinear>("tightloop::normed_linear");
  return op;
}

bool takes(const Tensor& x, const Tensor& branch, const Tensor& norm_weight, const Tensor& weight,
           const Optional& bias) {
  if (!few_made_rows_take(x, weight, bias) || !registered(normed_linear_op(), x)) return false;
  const int64_t I = weight.size(1);
  if (x.size(-1) != I || !has_short_rows(x)) return false;
  for (const Tensor* other : {&branch, &norm_weight})
    if (other->defined() &&
        (other->device() != x.device() || (at::GradMode::is_enabled() && other->requires_grad())))
      return false;
  if (branch.defined() && (branch.sizes() != x.sizes() || branch.scalar_type() != x.scalar_type()))
    return false;
  return !norm_weight.defined() ||
         (norm_weight.dim() == 1 && norm_weight.size(0) == I &&
          (norm_weight.scalar_type() == x.scalar_type() || norm_weight.scalar_type() == at::kFloat));
}

}  // namespace

NormedProduct normed_linear(const Tensor& x, const Tensor& branch, const Tensor& norm_weight, double eps,
                            const Tensor& weight, const Optional& bias) {
  if (takes(x, branch, norm_weight, weight, bias)) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [sum, product] = normed_linear_op().call(x, given(branch), given(norm_weight), eps, weight, bias);
    return {branch.defined() ? sum : x, product};
  }
  const NormedSum then = branch.defined() ? add_rms_norm(x, branch, norm_weight, eps)
                                          : NormedSum{x, rms_norm(x, norm_weight, eps)};
  return {then.sum, ops::linear(then.normed, weight, bias)};
}

NormedProduct normed_linear_plain(const Tensor& x, const Tensor& branch, const Tensor& norm_weight,
                                  double eps, const Tensor& weight, const Optional& bias) {
  const NormedSum then = branch.defined() ? add_rms_norm_plain(x, branch, norm_weight, eps)
                                          : NormedSum{x, rms_norm_plain(x, norm_weight, eps)};
  return {then.sum, at::linear(then.normed, weight, bias)};
}

}  // namespace tightloop::ops
