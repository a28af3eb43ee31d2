#include "ops/pointwise/gelu_linear.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "ops/fp8/fp8_linear.h"
#include "ops/linear.h"
#include "ops/operator.h"
#include "ops/pointwise/activation.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// x (N, D), weight (F, D); `before` is what gelu is taken of. There is no CPU kernel. Backward is that of the
// activation: cuBLASLt's product with gelu's slope and the bias's gradient in it took 9 ms more of
// gpt2-124m's step.
TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def("gelu_linear_forward(Tensor x, Tensor weight, Tensor bias) -> (Tensor y, Tensor before)");
}
using GeluLinearForward = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&);
using ActivationBackward = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&,
                                                      const std::optional<Tensor>&, int64_t, double,
                                                      const std::optional<Tensor>&, int64_t);

struct GeluLinearFunction : torch::autograd::Function<GeluLinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, const Tensor& bias) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<GeluLinearForward>("tightloop::gelu_linear_forward");
    const Tensor flat = x.reshape({-1, x.size(-1)});
    auto [y, before] = kernel.call(flat, weight, bias);
    context->save_for_backward({weight.requires_grad() ? flat : Tensor(), weight, bias, before});
    auto shape = x.sizes().vec();
    shape.back() = weight.size(0);
    return y.view(shape);
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<ActivationBackward>("tightloop::activation_backward");
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &before = saved[3];
    const Tensor dy = d[0].reshape({-1, d[0].size(-1)});
    // `before` has the bias in it already: the kernel adds zeros, and sums up the gradient.
    auto [dbefore, dbias] = kernel.call(dy, before, at::zeros_like(bias),
                                        static_cast<int64_t>(ActivationKind::kGeluTanh), 0, std::nullopt, 0);
    auto shape = d[0].sizes().vec();
    shape.back() = weight.size(1);
    return {context->needs_input_grad(0) ? at::matmul(dbefore, weight).view(shape) : Tensor(),
            x.defined() ? at::matmul(dbefore.t(), x) : Tensor(), dbias};
  }
};

bool gelu_linear_fits(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  static const auto forward = find_operator<GeluLinearForward>("tightloop::gelu_linear_forward");
  const bool narrow = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  if (plain() || !narrow || !registered(forward, x) || fp8_takes(x, weight) || x.numel() == 0) return false;
  for (const Tensor* each : {&x, &weight, &bias})
    if (!is_flat(*each) || each->scalar_type() != x.scalar_type()) return false;
  return weight.size(0) % 8 == 0 && weight.size(1) % 8 == 0;
}

}  // namespace

Tensor gelu_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  TORCH_CHECK(
      weight.dim() == 2 && weight.size(1) == x.size(-1) && bias.dim() == 1 && bias.size(0) == weight.size(0),
      "gelu_linear: x ", x.sizes(), ", weight ", weight.sizes(), " and bias ", bias.sizes(),
      " do not belong together");
  if (!gelu_linear_fits(x, weight, bias)) return gelu_linear_plain(x, weight, bias);
  return GeluLinearFunction::apply(x, weight, bias);
}

Tensor gelu_linear_plain(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return activation(linear(x, weight), bias, ActivationKind::kGeluTanh);
}

}  // namespace tightloop::ops
