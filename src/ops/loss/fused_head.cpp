#include "ops/loss/fused_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <memory>

#include "ops/fp8/fp8_cast.h"
#include "ops/fp8/fp8_linear.h"
#include "ops/linear.h"
#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;

constexpr int64_t kMostRows = 4096;  // enough to keep a GPU busy; more is slower there and costs memory
constexpr int64_t kLine = 64;        // elements: a GPU's products are slow on rows that start anywhere

int64_t rows_at_once(int64_t rows, bool cuda, bool fp8) {
  if (fp8) return 2 * kMostRows;  // each chunk's part of the weight's gradient is added in a pass of its own
  // On the CPU torch may copy a chunk of 16-bit logits for its product with many threads.
  return cuda ? kMostRows : std::clamp<int64_t>(rows / 32, 1, kMostRows);
}

/// The products of a head for `count` rows from `begin` on.
class HeadProducts {
 public:
  virtual ~HeadProducts() = default;
  virtual void logits(int64_t begin, int64_t count, Tensor& to) = 0;
  /// `d_hidden`: of these rows. `d_weight`, in fp32, is added to, but by the first rows set. Either may be
  /// undefined.
  virtual void gradients(int64_t begin, int64_t count, const Tensor& d_logits, Tensor d_hidden,
                         Tensor& d_weight) = 0;
};

class OwnProducts : public HeadProducts {
 public:
  OwnProducts(const Tensor& hidden, const Tensor& weight)
      : hidden_(hidden),
        widens_(hidden.is_cpu() && !has_products(hidden.scalar_type())),
        weight_(factor(weight)) {}

  void logits(int64_t begin, int64_t count, Tensor& to) override {
    multiply(to, factor(hidden_.narrow(0, begin, count)), weight_.t());
  }

  void gradients(int64_t begin, int64_t count, const Tensor& d_logits, Tensor d_hidden,
                 Tensor& d_weight) override {
    const Tensor by = factor(d_logits);
    if (d_hidden.defined()) multiply(d_hidden, by, weight_);
    if (d_weight.defined()) add_product(d_weight, by, factor(hidden_.narrow(0, begin, count)), begin == 0);
  }

 private:
  // In fp32 where this CPU has no products of its dtype (see ops::linear).
  Tensor factor(const Tensor& x) const { return widens_ ? x.to(at::kFloat) : x; }
  static void multiply(Tensor& to, const Tensor& a, const Tensor& b) {
    if (a.scalar_type() == to.scalar_type())
      at::mm_out(to, a, b);
    else
      to.copy_(at::mm(a, b));
  }
  // sum += a^T b, or = for the first, in the sum's dtype. On a CPU that has products of 16-bit matrices each
  // is rounded before it is added.
  static void add_product(Tensor& sum, const Tensor& a, const Tensor& b, bool first) {
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

  const Tensor hidden_;
  const bool widens_;
  const Tensor weight_;
};

/// As ops/fp8/fp8_linear.h has them. Hidden states and weight are cast once. Of the gradients of logits no
/// largest is looked for: it is the scale, since a softmax less its target is at most 1; but for z-loss,
/// which adds to them.
class Fp8Products : public HeadProducts {
 public:
  Fp8Products(const Tensor& hidden, const Tensor& weight, const LossOptions& options, bool for_hidden,
              bool for_weight)
      : hidden_(fp8_cast(hidden, absolute_max(hidden), Fp8Format::kE4m3, /*rows=*/true, for_weight)),
        weight_(fp8_cast(weight, absolute_max(weight), Fp8Format::kE4m3, /*rows=*/true, for_hidden)),
        bounded_(options.z_loss == 0),
        most_(options.scale.defined() ? options.scale.abs()
                                      : at::ones({}, hidden.options().dtype(at::kFloat))) {}

  void logits(int64_t begin, int64_t count, Tensor& to) override {
    fp8_product_out(to, hidden_.rows.narrow(0, begin, count), hidden_.scale, weight_.rows, weight_.scale,
                    /*fast=*/true);
  }

  void gradients(int64_t begin, int64_t count, const Tensor& d_logits, Tensor d_hidden,
                 Tensor& d_weight) override {
    const auto d = fp8_cast(d_logits, bounded_ ? most_ : absolute_max(d_logits), Fp8Format::kE5m2,
                            d_hidden.defined(), /*columns=*/d_weight.defined());
    if (d_hidden.defined())
      fp8_product_out(d_hidden, d.rows, d.scale, weight_.columns, weight_.scale, /*fast=*/true);
    if (!d_weight.defined()) return;
    if (begin > 0 && !part_.defined()) part_ = at::empty_like(d_weight);
    Tensor& to = begin > 0 ? part_ : d_weight;
    fp8_product_out(to, d.columns, d.scale, hidden_.columns.narrow(1, begin, count), hidden_.scale,
                    /*fast=*/false);
    if (begin > 0) d_weight.add_(part_);
  }

 private:
  const Fp8Matrix hidden_, weight_;
  const bool bounded_;
  const Tensor most_;
  Tensor part_;
};

/// Chunks of whole rows of fp8_takes, without space between them.
bool head_takes_fp8(const Tensor& hidden, const Tensor& weight) {
  return fp8_takes(hidden, weight) && weight.size(0) % kLine == 0;
}

ComputedLoss by_chunks(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                       const LossOptions& options, bool for_hidden, bool for_weight) {
  const bool narrow = head_takes_fp8(hidden, weight);
  const int64_t N = hidden.size(0), V = weight.size(0),
                rows = rows_at_once(hidden.size(0), hidden.is_cuda(), narrow);
  const auto wide = hidden.options().dtype(at::kFloat);
  ComputedLoss all{at::empty({N}, wide)};
  if (options.correct) all.correct = at::empty({N}, wide.dtype(at::kBool));
  if (for_hidden) all.d_input = at::empty_like(hidden);
  if (for_weight) all.d_weight = N ? at::empty(weight.sizes(), wide) : at::zeros(weight.sizes(), wide);
  const int64_t stride = hidden.is_cuda() ? (V + kLine - 1) / kLine * kLine : V;
  const Tensor buffer = at::empty({std::min(rows, N), stride}, hidden.options()).narrow(1, 0, V);
  std::unique_ptr<HeadProducts> products = narrow
                                               ? std::unique_ptr<HeadProducts>(std::make_unique<Fp8Products>(
                                                     hidden, weight, options, for_hidden, for_weight))
                                               : std::make_unique<OwnProducts>(hidden, weight);
  for (int64_t begin = 0; begin < N; begin += rows) {
    const int64_t count = std::min(rows, N - begin);
    const auto part = [&](const Tensor& x) { return x.defined() ? x.narrow(0, begin, count) : x; };
    Tensor logits = buffer.narrow(0, 0, count);
    products->logits(begin, count, logits);
    LossRows to{part(all.losses), {}, part(all.correct)};
    if (for_hidden || for_weight) to.gradient = logits;  // takes the logits' place
    cross_entropy_rows(logits, part(targets), to, options);
    if (for_hidden || for_weight) products->gradients(begin, count, logits, part(all.d_input), all.d_weight);
  }
  products.reset();
  if (for_weight) all.d_weight = all.d_weight.to(weight.scalar_type());
  return all;
}

}  // namespace

int64_t fused_head_rows(const Tensor& hidden) {
  return rows_at_once(hidden.size(0), hidden.is_cuda(), /*fp8=*/false);
}

double fused_head_bytes(int64_t rows, int64_t vocabulary, int64_t width, int64_t element, bool cuda,
                        bool fp8) {
  constexpr double kWide = 4;
  const auto N = static_cast<double>(rows), V = static_cast<double>(vocabulary),
             D = static_cast<double>(width), e = static_cast<double>(element);
  const auto chunk = static_cast<double>(std::min(rows, rows_at_once(rows, cuda, fp8)));
  const double results = N * (D * e + kWide) + V * D * kWide;
  const double rounded = e < kWide ? V * D * e : 0;  // the sum of the weight's gradient, or a part of it
  if (!fp8) return results + chunk * V * e + rounded;
  // Both forms of what is multiplied; a chunk's part of the weight's gradient, where there are several.
  const double part = N > chunk ? V * D * kWide : 0;
  return results + chunk * V * (e + 2) + 2 * D * (N + V) + std::max(part, rounded);
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
