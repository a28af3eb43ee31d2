#include "ops/pointwise/embedding.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/sort.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// There is no CPU kernel: torch's passes are good there. EmbeddingForward is torch's everywhere.
TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def("embedding_backward(Tensor dy, Tensor sorted, Tensor positions, int rows) -> Tensor dweight");
}

const auto& backward_kernel() {
  using EmbeddingBackward = Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t);
  static const auto kernel = find_operator<EmbeddingBackward>("tightloop::embedding_backward");
  return kernel;
}

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& weight, const Tensor& ids,
                        const Tensor& sorted, const Tensor& positions) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({sorted, positions});
    context->saved_data["rows"] = weight.size(0);
    return at::embedding(weight, ids);
  }

  static variable_list backward(AutogradContext* context, const variable_list& dy) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = context->get_saved_variables();
    return {backward_kernel().call(dy[0], saved[0], saved[1], context->saved_data["rows"].toInt()), Tensor(),
            Tensor(), Tensor()};
  }
};

bool embedding_fits(const Tensor& weight) {
  constexpr int64_t kPack = 16;  // bytes that a thread loads at once
  return has_kernel(weight) && registered(backward_kernel(), weight) &&
         weight.size(1) * weight.element_size() % kPack == 0;
}

}  // namespace

TokenOrder token_order(const Tensor& weight, const Tensor& ids) {
  TORCH_CHECK(weight.dim() == 2, "token_order: the weight must be (V, D)");
  TORCH_CHECK(ids.scalar_type() == at::kLong, "token_order: ids must be int64");
  if (!c10::GradMode::is_enabled() || !weight.requires_grad() || !embedding_fits(weight)) return {};
  // Half the digits of int64 are half the passes of a radix sort.
  auto [sorted, positions] = at::sort(ids.reshape({-1}).to(at::kInt), /*stable=*/std::optional(true), 0);
  return {sorted, positions};
}

Tensor embedding(const Tensor& weight, const Tensor& ids, const TokenOrder& order) {
  if (!order.ids.defined() || !embedding_fits(weight)) return embedding_plain(weight, ids);
  TORCH_CHECK(order.ids.numel() == ids.numel() && order.positions.numel() == ids.numel(),
              "embedding: the order is that of other ids");
  return EmbeddingFunction::apply(weight, ids, order.ids, order.positions);
}

Tensor embedding(const Tensor& weight, const Tensor& ids) {
  return embedding(weight, ids, token_order(weight, ids));
}

Tensor embedding_plain(const Tensor& weight, const Tensor& ids) { return at::embedding(weight, ids); }

}  // namespace tightloop::ops
