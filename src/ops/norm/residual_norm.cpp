#include "ops/norm/residual_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/layer_norm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// There is no CPU kernel: torch's passes are good there.
TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def(
      "residual_norm_forward(Tensor x, Tensor? y, Tensor? y_bias, Tensor weight, Tensor bias, float eps,"
      " float p, Tensor? random, int site)"
      " -> (Tensor sum, Tensor normed, Tensor mean, Tensor scale)");
  m.def(
      "residual_norm_backward(Tensor? dsum, Tensor? dnormed, Tensor sum, Tensor weight, Tensor mean,"
      " Tensor scale, bool added, float p, Tensor? random, int site)"
      " -> (Tensor dx, Tensor dy, Tensor dy_bias, Tensor dweight, Tensor dbias)");
}

using Optional = std::optional<Tensor>;
using ResidualNormForward = std::tuple<Tensor, Tensor, Tensor, Tensor>(const Tensor&, const Optional&,
                                                                       const Optional&, const Tensor&,
                                                                       const Tensor&, double, double,
                                                                       const Optional&, int64_t);
using ResidualNormBackward = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>(
    const Optional&, const Optional&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool,
    double, const Optional&, int64_t);

// x, and y with it where there is one: then the sum is a result of its own.
struct ResidualNormFunction : torch::autograd::Function<ResidualNormFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& x, const Optional& y,
                               const Optional& y_bias, const Tensor& weight, const Tensor& bias, double eps,
                               double p, const Optional& random, int64_t site) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<ResidualNormForward>("tightloop::residual_norm_forward");
    auto [sum, normed, mean, scale] = kernel.call(x, y, y_bias, weight, bias, eps, p, random, site);
    context->set_materialize_grads(false);
    context->save_for_backward({y ? sum : x, weight, mean, scale, or_undefined(random)});
    context->saved_data["p"] = p;
    context->saved_data["site"] = site;
    if (!y) return {normed};
    return {normed, sum};
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<ResidualNormBackward>("tightloop::residual_norm_backward");
    const auto saved = context->get_saved_variables();
    const bool added = d.size() > 1;
    auto [dx, dy, dy_bias, dweight, dbias] = kernel.call(
        added ? given(d[1]) : std::nullopt, given(d[0]), saved[0], saved[1], saved[2], saved[3], added,
        context->saved_data["p"].toDouble(), given(saved[4]), context->saved_data["site"].toInt());
    return {dx, added ? dy : Tensor(), dy_bias, dweight, dbias, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

bool residual_norm_fits(const Tensor& x, std::initializer_list<const Tensor*> others) {
  static const auto forward = find_operator<ResidualNormForward>("tightloop::residual_norm_forward");
  if (!has_kernel(x) || !registered(forward, x) || !has_short_rows(x)) return false;
  for (const Tensor* other : others)
    if (other->scalar_type() != x.scalar_type() || !is_flat(*other)) return false;
  return is_flat(x);
}

}  // namespace

NormedSum residual_norm(const Tensor& x, const Tensor& y, const Tensor& y_bias, const Tensor& weight,
                        const Tensor& bias, double eps, const Dropout& drop) {
  TORCH_CHECK(x.dim() > 0 && x.sizes() == y.sizes(), "residual_norm: x and y differ in shape");
  for (const Tensor* vector : {&y_bias, &weight, &bias})
    TORCH_CHECK(
        vector->dim() == 1 && vector->size(0) == x.size(-1) && vector->device() == x.device(),
        "residual_norm: biases and weight must hold one value for each element of x's last dimension");
  check(drop, x.device());
  if (!residual_norm_fits(x, {&y, &y_bias, &weight, &bias}))
    return residual_norm_plain(x, y, y_bias, weight, bias, eps, drop);
  const auto made = ResidualNormFunction::apply(x, Optional(y), Optional(y_bias), weight, bias, eps,
                                                drop.rate, given(drop.random), drop.site);
  return {made[1], made[0]};
}

NormedSum residual_norm_plain(const Tensor& x, const Tensor& y, const Tensor& y_bias, const Tensor& weight,
                              const Tensor& bias, double eps, const Dropout& drop) {
  const Tensor sum = x + dropout(y + y_bias, drop);
  return {sum, at::layer_norm(sum, {x.size(-1)}, weight, bias, eps)};
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  for (const Tensor* vector : {&weight, &bias})
    TORCH_CHECK(
        x.dim() > 0 && vector->dim() == 1 && vector->size(0) == x.size(-1) && vector->device() == x.device(),
        "layer_norm: weight and bias must hold one value for each element of x's last dimension");
  if (!residual_norm_fits(x, {&weight, &bias})) return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
  return ResidualNormFunction::apply(x, Optional(), Optional(), weight, bias, eps, 0.0, Optional(), 0)[0];
}

}  // namespace tightloop::ops
