#include "ops/pointwise/activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
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
  m.def("activation_forward(Tensor x, Tensor? bias, int kind, float p, Tensor? random, int site) -> Tensor");
  m.def(
      "activation_backward(Tensor dy, Tensor x, Tensor? bias, int kind, float p, Tensor? random, int site)"
      " -> (Tensor dx, Tensor dbias)");
}

using Optional = std::optional<Tensor>;
using ActivationForward = Tensor(const Tensor&, const Optional&, int64_t, double, const Optional&, int64_t);
using ActivationBackward = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Optional&, int64_t,
                                                      double, const Optional&, int64_t);

struct ActivationFunction : torch::autograd::Function<ActivationFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Optional& bias, int64_t kind,
                        double p, const Optional& random, int64_t site) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<ActivationForward>("tightloop::activation_forward");
    const Tensor y = kernel.call(x, bias, kind, p, random, site);
    // What comes after keeps the result: where that gives the slope, the input may go.
    const bool by_result = kind == static_cast<int64_t>(ActivationKind::kReluSquare) && !bias && p == 0;
    context->save_for_backward({by_result ? y : x, or_undefined(bias), or_undefined(random)});
    context->saved_data["kind"] = by_result ? static_cast<int64_t>(ActivationKind::kSquared) : kind;
    context->saved_data["p"] = p;
    context->saved_data["site"] = site;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& dy) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<ActivationBackward>("tightloop::activation_backward");
    const auto saved = context->get_saved_variables();
    auto [dx, dbias] = kernel.call(dy[0], saved[0], given(saved[1]), context->saved_data["kind"].toInt(),
                                   context->saved_data["p"].toDouble(), given(saved[2]),
                                   context->saved_data["site"].toInt());
    return {dx, dbias, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

bool activation_fits(const Tensor& x, const Tensor& bias) {
  static const auto forward = find_operator<ActivationForward>("tightloop::activation_forward");
  constexpr int64_t kPack = 16;  // bytes that a thread loads at once
  return has_kernel(x) && registered(forward, x) && x.size(-1) * x.element_size() % kPack == 0 &&
         is_flat(x) && (!bias.defined() || (bias.scalar_type() == x.scalar_type() && is_flat(bias)));
}

}  // namespace

Tensor activation(const Tensor& x, const Tensor& bias, ActivationKind kind, const Dropout& drop) {
  TORCH_CHECK(
      !bias.defined() || (bias.dim() == 1 && bias.size(0) == x.size(-1) && bias.device() == x.device()),
      "activation: the bias must hold one value for each element of x's last dimension");
  check(drop, x.device());
  if (!activation_fits(x, bias)) return activation_plain(x, bias, kind, drop);
  return ActivationFunction::apply(x, given(bias), static_cast<int64_t>(kind), drop.rate, given(drop.random),
                                   drop.site);
}

Tensor activation_plain(const Tensor& x, const Tensor& bias, ActivationKind kind, const Dropout& drop) {
  const Tensor z = bias.defined() ? x + bias : x;
  switch (kind) {
    case ActivationKind::kRelu:
      return dropout(at::relu(z), drop);
    case ActivationKind::kReluSquare:
      return dropout(at::relu(z).square(), drop);
    case ActivationKind::kGelu:
      return dropout(at::gelu(z), drop);
    default:
      return dropout(at::gelu(z, "tanh"), drop);
  }
}

}  // namespace tightloop::ops
