#include "ops/linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/cpu.h"
#include "ops/few_rows.h"
#include "ops/fp8/fp8_linear.h"
#include "ops/operator.h"
#include "ops/product.h"
#include "ops/quantized_linear.h"
#include "ops/side_gradients.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor wide_matrix(const Tensor& x) { return x.reshape({-1, x.size(-1)}).to(at::kFloat); }

// Factors in 16 bits, the products in fp32, each rounded once, as torch's own would be.
struct WideLinear : torch::autograd::Function<WideLinear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias) {
    at::AutoDispatchBelowADInplaceOrView below;
    const Tensor in = wide_matrix(x), by = weight.to(at::kFloat).t();
    context->save_for_backward({weight.requires_grad() ? x : Tensor(), weight});
    context->saved_data["bias"] = bias.has_value();
    auto shape = x.sizes().vec();
    shape.back() = weight.size(0);
    return (bias ? at::addmm(bias->to(at::kFloat), in, by) : at::mm(in, by)).to(x.scalar_type()).view(shape);
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], dy = wide_matrix(d[0]);
    const auto dtype = weight.scalar_type();
    auto shape = d[0].sizes().vec();
    shape.back() = weight.size(1);
    return {context->needs_input_grad(0) ? at::mm(dy, weight.to(at::kFloat)).to(dtype).view(shape) : Tensor(),
            x.defined() ? at::mm(dy.t(), wide_matrix(x)).to(dtype) : Tensor(),
            context->saved_data["bias"].toBool() ? dy.sum(0).to(dtype) : Tensor()};
  }
};

/// Whether torch would multiply these element by element. One row it multiplies well.
bool wide_takes(const Tensor& x, const Tensor& weight) {
  const auto dtype = x.scalar_type();
  return !plain() && x.is_cpu() && weight.dim() == 2 && weight.scalar_type() == dtype &&
         !has_products(dtype) && x.numel() > weight.size(1);
}

}  // namespace

bool has_products(at::ScalarType dtype) {
  static const bool bf16 = cpu_has_bf16_products(), fp16 = cpu_has("avx512_fp16");
  return dtype == at::kBFloat16 ? bf16 : dtype != at::kHalf || fp16;
}

Tensor linear(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, Input input) {
  if (is_quantized(weight)) return quantized_linear(x, weight, bias);
  if (fp8_takes(x, weight)) return fp8_linear(x, weight, bias, input == Input::kKept);
  if (few_rows_take(x, weight, bias)) return few_rows_linear(x, weight, bias);
  if (side_gradients_take(x, weight, bias)) return side_linear(x, weight, bias);
  if (product_takes(x, weight)) return product_linear(x, weight, bias);
  if (wide_takes(x, weight)) return WideLinear::apply(x, weight, bias);
  return at::linear(x, weight, bias);
}

}  // namespace tightloop::ops
