#include "ops/fused_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kShare = 8;        // of the logits' bytes, at most, are held
constexpr int64_t kMostRows = 4096;  // enough to keep a GPU busy; more only costs memory

struct Parts {
  Tensor losses, d_hidden, d_weight;
};

// sum += a^T b, in the sum's dtype. On the CPU a product of 16-bit matrices is rounded before it is added.
void add_product(Tensor& sum, const Tensor& a, const Tensor& b) {
  if (a.scalar_type() == sum.scalar_type()) {
    sum.addmm_(a.t(), b);
  } else if (a.is_cuda()) {
    sum.add_(at::mm(a.t(), b, sum.scalar_type()));
  } else {
    sum.add_(at::mm(a.t(), b));
  }
}

Parts by_chunks(const Tensor& hidden, const Tensor& weight, const Tensor& targets, const LossOptions& options,
                bool for_hidden, bool for_weight) {
  const int64_t N = hidden.size(0), V = weight.size(0), rows = fused_head_rows(hidden);
  const auto wide = compute_dtype(hidden);
  Parts parts{.losses = at::empty({N}, hidden.options().dtype(wide)), .d_hidden = {}, .d_weight = {}};
  if (for_hidden) parts.d_hidden = at::empty_like(hidden);
  if (for_weight) parts.d_weight = at::zeros(weight.sizes(), weight.options().dtype(wide));
  const Tensor buffer = at::empty({std::min(rows, N), V}, hidden.options());
  for (int64_t begin = 0; begin < N; begin += rows) {
    const int64_t count = std::min(rows, N - begin);
    const Tensor h = hidden.narrow(0, begin, count);
    Tensor logits = buffer.narrow(0, 0, count);
    at::mm_out(logits, h, weight.t());
    std::optional<Tensor> gradient;
    if (for_hidden || for_weight) gradient = logits;  // takes the logits' place
    parts.losses.narrow(0, begin, count)
        .copy_(cross_entropy_rows(logits, targets.narrow(0, begin, count), gradient, options));
    if (for_hidden) {
      Tensor to = parts.d_hidden.narrow(0, begin, count);
      at::mm_out(to, logits, weight);
    }
    if (for_weight) add_product(parts.d_weight, logits, h);
  }
  if (for_weight) parts.d_weight = parts.d_weight.to(weight.scalar_type());
  return parts;
}

struct FusedHead : torch::autograd::Function<FusedHead> {
  static variable_list forward(AutogradContext* context, const Tensor& hidden, const Tensor& weight,
                               const Tensor& targets, const LossOptions& options, bool for_hidden,
                               bool for_weight) {
    at::AutoDispatchBelowADInplaceOrView below;
    const Parts parts =
        by_chunks(hidden.contiguous(), weight.contiguous(), targets, options, for_hidden, for_weight);
    context->save_for_backward({parts.d_hidden, parts.d_weight});
    context->mark_non_differentiable({parts.losses});
    return {sum_of_losses(parts.losses), parts.losses};
  }

  static variable_list backward(AutogradContext* context, const variable_list& dsum) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto saved = context->get_saved_variables();
    // In the factor's fp32: rounded to 16 bits it would shift every gradient the same way.
    const auto scaled = [&](const Tensor& gradient) {
      return gradient.defined() ? (gradient.to(dsum[0].scalar_type()) * dsum[0]).to(gradient.scalar_type())
                                : gradient;
    };
    return {scaled(saved[0]), scaled(saved[1]), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

int64_t fused_head_rows(const Tensor& hidden) {
  const int64_t element = hidden.element_size();
  const int64_t wide = compute_dtype(hidden) == at::kDouble ? 8 : 4;
  // Bytes an element: the CPU's kernel works in place and has a row or two beside it; ordinary ATen holds two
  // wide copies, and some room is left for what has the size of a row or a column.
  const int64_t held = has_kernel(hidden) && hidden.is_cpu() ? 2 * element : element + 2 * wide + wide / 2;
  return std::clamp<int64_t>(hidden.size(0) * element / (kShare * held), 1, kMostRows);
}

LossSum fused_head(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                   const LossOptions& options) {
  TORCH_CHECK(hidden.dim() == 2 && weight.dim() == 2 && hidden.size(1) == weight.size(1),
              "fused_head: hidden must be (rows, width) and weight (vocabulary, width)");
  if (plain()) return fused_head_plain(hidden, weight, targets, options);
  const bool learning = c10::GradMode::is_enabled();
  const auto results = FusedHead::apply(hidden, weight, targets, options, learning && hidden.requires_grad(),
                                        learning && weight.requires_grad());
  return {results[0], (targets != kIgnoreIndex).sum(), results[1]};
}

LossSum fused_head_plain(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                         const LossOptions& options) {
  return cross_entropy_plain(at::linear(hidden, weight), targets, options);
}

}  // namespace tightloop::ops
