#include "ops/pointwise/gelu_feed_forward.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/few_rows.h"
#include "ops/fp8/fp8_linear.h"
#include "ops/linear.h"
#include "ops/operator.h"
#include "ops/pointwise/activation.h"
#include "ops/product.h"
#include "ops/quantized_linear.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct GeluFeedForward : torch::autograd::Function<GeluFeedForward> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& up, const Tensor& up_bias,
                        const Tensor& down) {
    at::AutoDispatchBelowADInplaceOrView below;
    const Tensor flat = x.reshape({-1, x.size(-1)});
    Tensor before = at::empty({flat.size(0), up.size(0)}, x.options());
    Tensor hidden =
        product(flat, up.t(), x.scalar_type(), {.bias = up_bias, .epilogue = Epilogue::kGelu, .aux = before});
    if (!hidden.defined()) {
      before = at::linear(flat, up, up_bias);
      hidden = at::gelu(before, "tanh");
    }
    context->save_for_backward(
        {up.requires_grad() ? x : Tensor(), up, before, down.requires_grad() ? hidden : Tensor(), down});
    auto shape = x.sizes().vec();
    shape.back() = down.size(0);
    return product_or_matmul(hidden, down.t()).view(shape);
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &up = saved[1], &before = saved[2], &hidden = saved[3], &down = saved[4];
    const Tensor dy = d[0].reshape({-1, d[0].size(-1)});
    Tensor dbefore = product(dy, down, dy.scalar_type(), {.epilogue = Epilogue::kGeluSlope, .aux = before});
    if (!dbefore.defined()) dbefore = at::gelu_backward(at::matmul(dy, down), before, "tanh");
    Tensor dx, dup, dbias, ddown;
    if (context->needs_input_grad(0)) {
      auto shape = d[0].sizes().vec();
      shape.back() = up.size(1);
      dx = product_or_matmul(dbefore, up).view(shape);
    }
    if (x.defined()) dup = product_or_matmul(dbefore.t(), x.reshape({-1, x.size(-1)}));
    if (context->needs_input_grad(2)) dbias = dbefore.sum(0);
    if (hidden.defined()) ddown = product_or_matmul(dy.t(), hidden);
    return {dx, dup, dbias, ddown};
  }
};

bool feed_forward_fits(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down) {
  const bool narrow = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  if (plain() || !narrow || !has_product(x) || fp8_takes(x, up) || x.numel() == 0) return false;
  for (const Tensor* each : {&x, &up, &up_bias, &down})
    if (!is_flat(*each) || each->scalar_type() != x.scalar_type()) return false;
  for (const Tensor* each : {&up, &down})
    if (each->size(0) % 8 != 0 || each->size(1) % 8 != 0) return false;
  return true;
}

}  // namespace

Tensor gelu_feed_forward(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down) {
  if (is_quantized(up) || is_quantized(down) || few_rows_take(x, up, up_bias))
    return gelu_feed_forward_plain(x, up, up_bias, down);
  TORCH_CHECK(up.dim() == 2 && up.size(1) == x.size(-1) && up_bias.dim() == 1 &&
                  up_bias.size(0) == up.size(0) && down.dim() == 2 && down.size(1) == up.size(0),
              "gelu_feed_forward: x ", x.sizes(), ", up ", up.sizes(), ", its bias ", up_bias.sizes(),
              " and down ", down.sizes(), " do not belong together");
  if (!feed_forward_fits(x, up, up_bias, down)) return gelu_feed_forward_plain(x, up, up_bias, down);
  return GeluFeedForward::apply(x, up, up_bias, down);
}

Tensor gelu_feed_forward_plain(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down) {
  return ops::linear(activation(ops::linear(x, up), up_bias, ActivationKind::kGeluTanh), down);
}

}  // namespace tightloop::ops
