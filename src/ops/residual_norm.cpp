#include "ops/residual_norm.h"

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
      "residual_norm_forward(Tensor x, Tensor y, Tensor y_bias, Tensor weight, Tensor bias, float eps,"
      " float p, Tensor? random, int site)"
      " -> (Tensor sum, Tensor normed, Tensor mean, Tensor scale)");
  m.def(
      "residual_norm_backward(Tensor? dsum, Tensor? dnormed, Tensor sum, Tensor weight, Tensor mean,"
      " Tensor scale, float p, Tensor? random, int site)"
      " -> (Tensor dx, Tensor dy, Tensor dy_bias, Tensor dweight, Tensor dbias)");
}

using Optional = std::optional<Tensor>;
using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                                           const Tensor&, const Tensor&, double, double,
                                                           const Optional&, int64_t);
using Backward = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>(const Optional&, const Optional&,
                                                                    const Tensor&, const Tensor&,
                                                                    const Tensor&, const Tensor&, double,
                                                                    const Optional&, int64_t);

struct ResidualNormFunction : torch::autograd::Function<ResidualNormFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& x, const Tensor& y,
                               const Tensor& y_bias, const Tensor& weight, const Tensor& bias, double eps,
                               double p, const Optional& random, int64_t site) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<Forward>("tightloop::residual_norm_forward");
    auto [sum, normed, mean, scale] = kernel.call(x, y, y_bias, weight, bias, eps, p, random, site);
    context->set_materialize_grads(false);
    context->save_for_backward({sum, weight, mean, scale, or_undefined(random)});
    context->saved_data["p"] = p;
    context->saved_data["site"] = site;
    return {sum, normed};
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<Backward>("tightloop::residual_norm_backward");
    const auto saved = context->get_saved_variables();
    auto [dx, dy, dy_bias, dweight, dbias] = kernel.call(
        given(d[0]), given(d[1]), saved[0], saved[1], saved[2], saved[3], context->saved_data["p"].toDouble(),
        given(saved[4]), context->saved_data["site"].toInt());
    return {dx, dy, dy_bias, dweight, dbias, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

bool fits(const Tensor& x, const Tensor& y, std::initializer_list<const Tensor*> vectors) {
  static const auto forward = find_operator<Forward>("tightloop::residual_norm_forward");
  constexpr int64_t kMostBytes = 16 << 10, kPack = 16;  // of a row; what a thread loads at once
  const int64_t bytes = x.size(-1) * x.element_size();
  if (!has_kernel(x) || !registered(forward, x) || bytes > kMostBytes || bytes % kPack != 0) return false;
  for (const Tensor* vector : vectors)
    if (vector->scalar_type() != x.scalar_type() || !is_flat(*vector)) return false;
  return y.scalar_type() == x.scalar_type() && is_flat(x) && is_flat(y);
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
  if (!fits(x, y, {&y_bias, &weight, &bias}))
    return residual_norm_plain(x, y, y_bias, weight, bias, eps, drop);
  const auto made =
      ResidualNormFunction::apply(x, y, y_bias, weight, bias, eps, drop.share, given(drop.random), drop.site);
  return {made[0], made[1]};
}

NormedSum residual_norm_plain(const Tensor& x, const Tensor& y, const Tensor& y_bias, const Tensor& weight,
                              const Tensor& bias, double eps, const Dropout& drop) {
  const Tensor sum = x + dropout(y + y_bias, drop);
  return {sum, at::layer_norm(sum, {x.size(-1)}, weight, bias, eps)};
}

}  // namespace tightloop::ops
