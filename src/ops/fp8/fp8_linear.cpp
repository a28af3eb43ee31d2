#include "ops/fp8/fp8_linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_mm.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <atomic>

#include "ops/fp8/fp8_cast.h"
#include "ops/fp8/largest.h"
#include "ops/operator.h"
#include "ops/product.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::atomic<bool> fp8_products{false};

Tensor as_matrix(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

Tensor fp8_product(const Tensor& a_rows, const Tensor& a_scale, const Tensor& b_columns,
                   const Tensor& b_scale, at::ScalarType dtype, bool fast,
                   const std::optional<Tensor>& bias = {}) {
  if (!plain()) {
    const Tensor made = product(a_rows, b_columns.t(), dtype,
                                {.bias = bias, .a_scale = a_scale, .b_scale = b_scale, .fast = fast});
    if (made.defined()) return made;
  }
  return at::_scaled_mm(a_rows, b_columns.t(), a_scale, b_scale, bias, /*scale_result=*/{}, dtype, fast);
}

/// Of x as it came: torch counts writes to that, not to a view of it that is made below autograd.
Tensor largest_of_given(const Tensor& x, const Tensor& flat) {
  return x.is_contiguous() ? largest_of(x) : absolute_max(flat);
}

struct Fp8Linear : torch::autograd::Function<Fp8Linear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, bool learns, bool input_kept) {
    at::AutoDispatchBelowADInplaceOrView below;
    const Tensor flat = as_matrix(x).contiguous(), dense_weight = weight.contiguous();
    const bool weight_learns = learns && weight.requires_grad();
    const Tensor x_most = largest_of_given(x, flat), most = absolute_max(dense_weight);
    const auto in =
        fp8_cast(flat, x_most, Fp8Format::kE4m3, /*rows=*/true, /*columns=*/weight_learns && !input_kept);
    const auto by = fp8_cast(dense_weight, most, Fp8Format::kE4m3, /*rows=*/true, /*columns=*/false);
    const Tensor y = fp8_product(in.rows, in.scale, by.rows, by.scale, x.scalar_type(), /*fast=*/true, bias);
    context->save_for_backward(
        {in.columns, in.scale, weight, most, weight_learns && input_kept ? x : Tensor(), x_most});
    context->saved_data["bias"] = bias.has_value();
    auto shape = x.sizes().vec();
    shape.back() = weight.size(0);
    return y.view(shape);
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = context->get_saved_variables();
    const Tensor &weight = saved[2], &most = saved[3], &x = saved[4], &x_most = saved[5];
    const Tensor dy = as_matrix(d[0]).contiguous();
    const bool weight_learns = saved[0].defined() || x.defined();
    const auto out =
        fp8_cast(dy, largest_of_given(d[0], dy), Fp8Format::kE5m2, /*rows=*/true, /*columns=*/weight_learns);
    Tensor dx, dweight, dbias;
    if (context->needs_input_grad(0)) {
      const auto by = fp8_cast(weight.contiguous(), most, Fp8Format::kE4m3, /*rows=*/false, /*columns=*/true);
      auto shape = d[0].sizes().vec();
      shape.back() = weight.size(1);
      dx =
          fp8_product(out.rows, out.scale, by.columns, by.scale, dy.scalar_type(), /*fast=*/true).view(shape);
    }
    if (weight_learns) {
      const auto in = x.defined() ? fp8_cast(as_matrix(x).contiguous(), x_most, Fp8Format::kE4m3,
                                             /*rows=*/false, /*columns=*/true)
                                  : Fp8Matrix{.columns = saved[0], .scale = saved[1]};
      dweight = fp8_product(out.columns, out.scale, in.columns, in.scale, dy.scalar_type(), /*fast=*/false);
    }
    if (context->saved_data["bias"].toBool()) dbias = dy.sum(0);
    return {dx, dweight, dbias, Tensor(), Tensor()};
  }
};

}  // namespace

void use_fp8(bool on) { fp8_products.store(on, std::memory_order_relaxed); }
bool fp8() { return fp8_products.load(std::memory_order_relaxed); }

bool fp8_takes(const Tensor& x, const Tensor& weight) {
  if (!fp8() || !x.is_cuda() || weight.dim() != 2 || x.scalar_type() != weight.scalar_type()) return false;
  const bool narrow = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  const int64_t out = weight.size(0), in = weight.size(1), rows = in ? x.numel() / in : 0;
  return narrow && rows > 0 && rows % 16 == 0 && out % 16 == 0 && in % 16 == 0 && out >= 128 && in >= 128;
}

void fp8_product_out(Tensor& to, const Tensor& a_rows, const Tensor& a_scale, const Tensor& b_columns,
                     const Tensor& b_scale, bool fast) {
  at::_scaled_mm_out(to, a_rows, b_columns.t(), a_scale, b_scale, /*bias=*/{}, /*scale_result=*/{},
                     to.scalar_type(), fast);
}

Tensor fp8_linear(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, bool input_kept) {
  return Fp8Linear::apply(x, weight, bias, c10::GradMode::is_enabled(),
                          input_kept);  // off within the function
}

}  // namespace tightloop::ops
