#include "ops/loss/fused_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
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

constexpr int64_t kMostRows = 4096;  // enough to keep a GPU busy; more is slower there and costs memory
constexpr int64_t kLine = 64;        // elements: a GPU's products are slow on rows that start anywhere

// sum += a^T b, or = for the first, in the sum's dtype. On the CPU a product of 16-bit matrices is rounded
// before it is added.
void add_product(Tensor& sum, const Tensor& a, const Tensor& b, bool first) {
  const auto wide = sum.scalar_type();
  if (a.scalar_type() == wide) {
    first ? at::mm_out(sum, a.t(), b) : sum.addmm_(a.t(), b);
  } else if (a.is_cuda()) {
    first ? at::mm_out(sum, a.t(), b, wide) : at::addmm_out(sum, sum, a.t(), b, wide);
  } else {
    const Tensor product = at::mm(a.t(), b);
    first ? sum.copy_(product) : sum.add_(product);
  }
}

ComputedLoss by_chunks(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                       const LossOptions& options, bool for_hidden, bool for_weight) {
  const int64_t N = hidden.size(0), V = weight.size(0), rows = fused_head_rows(hidden);
  const auto wide = hidden.options().dtype(at::kFloat);
  ComputedLoss all{at::empty({N}, wide)};
  if (options.correct) all.correct = at::empty({N}, wide.dtype(at::kBool));
  if (for_hidden) all.d_input = at::empty_like(hidden);
  if (for_weight) all.d_weight = N ? at::empty(weight.sizes(), wide) : at::zeros(weight.sizes(), wide);
  const int64_t stride = hidden.is_cuda() ? (V + kLine - 1) / kLine * kLine : V;
  const Tensor buffer = at::empty({std::min(rows, N), stride}, hidden.options()).narrow(1, 0, V);
  for (int64_t begin = 0; begin < N; begin += rows) {
    const int64_t count = std::min(rows, N - begin);
    const auto part = [&](const Tensor& x) { return x.defined() ? x.narrow(0, begin, count) : x; };
    const Tensor h = part(hidden);
    Tensor logits = buffer.narrow(0, 0, count);
    at::mm_out(logits, h, weight.t());
    LossRows to{part(all.losses), {}, part(all.correct)};
    if (for_hidden || for_weight) to.gradient = logits;  // takes the logits' place
    cross_entropy_rows(logits, part(targets), to, options);
    if (for_hidden) {
      Tensor d_h = part(all.d_input);
      at::mm_out(d_h, logits, weight);
    }
    if (for_weight) add_product(all.d_weight, logits, h, begin == 0);
  }
  if (for_weight) all.d_weight = all.d_weight.to(weight.scalar_type());
  return all;
}

int64_t rows_at_once(int64_t rows, bool cuda) {
  // On the CPU torch may copy a chunk of 16-bit logits for its product with many threads.
  return cuda ? kMostRows : std::clamp<int64_t>(rows / 32, 1, kMostRows);
}

}  // namespace

int64_t fused_head_rows(const Tensor& hidden) { return rows_at_once(hidden.size(0), hidden.is_cuda()); }

double fused_head_bytes(int64_t rows, int64_t vocabulary, int64_t width, int64_t element, bool cuda) {
  constexpr double kWide = 4;
  const auto N = static_cast<double>(rows), V = static_cast<double>(vocabulary),
             D = static_cast<double>(width), e = static_cast<double>(element);
  const auto chunk = static_cast<double>(std::min(rows, rows_at_once(rows, cuda)));
  const double rounded = e < kWide ? V * D * e : 0;  // the sum of the weight's gradient, or a part of it
  return N * (D * e + kWide) + V * D * kWide + chunk * V * e + rounded;
}

LossSum fused_head(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                   const LossOptions& options) {
  TORCH_CHECK(hidden.dim() == 2 && weight.dim() == 2 && hidden.size(1) == weight.size(1),
              "fused_head: hidden must be (rows, width) and weight (vocabulary, width)");
  if (!has_kernel(hidden)) return fused_head_plain(hidden, weight, targets, options);
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
