#include "ops/product.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <atomic>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Optional = std::optional<Tensor>;

// There is no CPU kernel.
TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def(
      "product(Tensor a, Tensor b, ScalarType dtype, Tensor? bias, Tensor? a_scale, Tensor? b_scale, bool "
      "fast, int epilogue, Tensor? aux) -> Tensor");
}
using Product = Tensor(const Tensor&, const Tensor&, at::ScalarType, const Optional&, const Optional&,
                       const Optional&, bool, int64_t, const Optional&);

const auto& product_op() {
  static const auto op = find_operator<Product>("tightloop::product");
  return op;
}

std::atomic<bool> tuned{false};

constexpr double kLargeFlops = 8e9;  // some 10 us of a large GPU

Tensor as_rows(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

struct ProductLinear : torch::autograd::Function<ProductLinear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const Optional& bias) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({weight.requires_grad() ? x : Tensor(), weight});
    context->saved_data["bias"] = bias.has_value();
    const Tensor y = product(as_rows(x), weight.t(), x.scalar_type(), {.bias = bias});
    if (!y.defined()) return at::linear(x, weight, bias);
    auto shape = x.sizes().vec();
    shape.back() = weight.size(0);
    return y.view(shape);
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1];
    const Tensor dy = as_rows(d[0]);
    Tensor dx, dweight, dbias;
    if (context->needs_input_grad(0)) {
      auto shape = d[0].sizes().vec();
      shape.back() = weight.size(1);
      dx = product_or_matmul(dy, weight).view(shape);
    }
    if (x.defined()) dweight = product_or_matmul(dy.t(), as_rows(x));
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2)) dbias = dy.sum(0);
    return {dx, dweight, dbias};
  }
};

}  // namespace

bool has_product(const Tensor& x) { return registered(product_op(), x); }

Tensor product(const Tensor& a, const Tensor& b, at::ScalarType dtype, const ProductOptions& options) {
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), "product: ", a.sizes(), " times ",
              b.sizes());
  return product_op().call(a, b, dtype, options.bias, options.a_scale, options.b_scale, options.fast,
                           static_cast<int64_t>(options.epilogue), options.aux);
}

Tensor product_or_matmul(const Tensor& a, const Tensor& b) {
  const Tensor made = product(a, b, a.scalar_type());
  return made.defined() ? made : at::matmul(a, b);
}

bool product_takes(const Tensor& x, const Tensor& weight) {
  const bool narrow = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  if (!narrow || !autotune() || plain() || weight.dim() != 2 || x.scalar_type() != weight.scalar_type())
    return false;
  const double flops = 2.0 * static_cast<double>(x.numel()) * static_cast<double>(weight.size(0));
  return flops >= kLargeFlops && weight.size(0) % 8 == 0 && weight.size(1) % 8 == 0 && has_product(x);
}

Tensor product_linear(const Tensor& x, const Tensor& weight, const Optional& bias) {
  return ProductLinear::apply(x, weight, bias);
}

void use_autotune(bool on) { tuned.store(on, std::memory_order_relaxed); }
bool autotune() {
  return tuned.load(std::memory_order_relaxed) && !at::globalContext().deterministicAlgorithms();
}

}  // namespace tightloop::ops
