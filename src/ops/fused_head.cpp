#include "ops/fused_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;

constexpr int64_t kShare = 8;        // of the logits' bytes, at most, are held
constexpr int64_t kMostRows = 4096;  // enough to keep a GPU busy; more only costs memory

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

ComputedLoss by_chunks(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                       const LossOptions& options, bool for_hidden, bool for_weight) {
  const int64_t N = hidden.size(0), V = weight.size(0), rows = fused_head_rows(hidden);
  const auto wide = compute_dtype(hidden);
  ComputedLoss parts;
  parts.losses = at::empty({N}, hidden.options().dtype(wide));
  if (options.correct) parts.correct = at::empty({N}, hidden.options().dtype(at::kBool));
  if (for_hidden) parts.d_input = at::empty_like(hidden);
  if (for_weight) parts.d_weight = at::zeros(weight.sizes(), weight.options().dtype(wide));
  const Tensor buffer = at::empty({std::min(rows, N), V}, hidden.options());
  for (int64_t begin = 0; begin < N; begin += rows) {
    const int64_t count = std::min(rows, N - begin);
    const Tensor h = hidden.narrow(0, begin, count);
    Tensor logits = buffer.narrow(0, 0, count);
    at::mm_out(logits, h, weight.t());
    std::optional<Tensor> gradient, correct;
    if (for_hidden || for_weight) gradient = logits;  // takes the logits' place
    if (options.correct) correct = parts.correct.narrow(0, begin, count);
    parts.losses.narrow(0, begin, count)
        .copy_(cross_entropy_rows(logits, targets.narrow(0, begin, count), gradient, options, correct));
    if (for_hidden) {
      Tensor to = parts.d_input.narrow(0, begin, count);
      at::mm_out(to, logits, weight);
    }
    if (for_weight) add_product(parts.d_weight, logits, h);
  }
  if (for_weight) parts.d_weight = parts.d_weight.to(weight.scalar_type());
  return parts;
}

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
  const auto computed = [&] {
    at::AutoDispatchBelowADInplaceOrView below;
    return by_chunks(hidden.contiguous(), weight.contiguous(), targets, options,
                     learning && hidden.requires_grad(), learning && weight.requires_grad());
  }();
  return finish_loss(computed, targets, options, hidden, weight);
}

LossSum fused_head_plain(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                         const LossOptions& options) {
  return cross_entropy_plain(at::linear(hidden, weight), targets, options);
}

}  // namespace tightloop::ops
