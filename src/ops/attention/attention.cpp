#include "ops/attention/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/triu.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>
#include <optional>
#include <tuple>

#include "ops/attention/attention_counter.h"
#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Far enough below every score that exp() of the difference is 0, and within fp16.
constexpr double kNever = -3e4;

// There is no CPU kernel: torch's attention and the plain twin serve there.
TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def(
      "attention_forward(Tensor q, Tensor k, Tensor v, Tensor? lengths, bool causal, float p, Tensor? random,"
      " int site) -> (Tensor, Tensor)");
  m.def(
      "attention_backward(Tensor dy, Tensor y, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor? lengths,"
      " bool causal, float p, Tensor? random, int site,"
      " Tensor(a!) dq, Tensor(b!) dk, Tensor(c!) dv) -> ()");
}

using Optional = std::optional<Tensor>;
using AttentionForward = std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                                    const Optional&, bool, double, const Optional&, int64_t);
using AttentionBackward = void(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                               const Tensor&, const Optional&, bool, double, const Optional&, int64_t,
                               Tensor&, Tensor&, Tensor&);

/// Views of what the products made: with `kv` queries and the rest, else all three in one.
struct Parts {
  Tensor q, k, v;

  Parts(const Tensor& queries, const Tensor& kv)
      : q(kv.defined() ? queries : queries.select(2, 0)),
        k(kv.defined() ? kv.select(2, 0) : queries.select(2, 1)),
        v(kv.defined() ? kv.select(2, 1) : queries.select(2, 2)) {}
};

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& queries, const Optional& kv,
                        const Optional& lengths, bool causal, double p, const Optional& random,
                        int64_t site) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<AttentionForward>("tightloop::attention_forward");
    const Parts parts(queries, or_undefined(kv));
    auto [y, lse] = kernel.call(parts.q, parts.k, parts.v, lengths, causal, p, random, site);
    context->save_for_backward(
        {queries, or_undefined(kv), or_undefined(lengths), or_undefined(random), y, lse});
    context->saved_data["causal"] = causal;
    context->saved_data["p"] = p;
    context->saved_data["site"] = site;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& dy) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<AttentionBackward>("tightloop::attention_backward");
    const auto saved = context->get_saved_variables();
    const Tensor &queries = saved[0], &kv = saved[1];
    const Tensor dqueries = at::empty(queries.sizes(), queries.options()),
                 dkv = kv.defined() ? at::empty(kv.sizes(), kv.options()) : Tensor();
    const Parts parts(queries, kv);
    Parts gradients(dqueries, dkv);
    kernel.call(dy[0], saved[4], saved[5], parts.q, parts.k, parts.v, given(saved[2]),
                context->saved_data["causal"].toBool(), context->saved_data["p"].toDouble(), given(saved[3]),
                context->saved_data["site"].toInt(), gradients.q, gradients.k, gradients.v);
    return {dqueries, dkv, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

/// Whether the kernel takes rows of heads like these.
bool attention_fits(const Tensor& x) {
  static const auto forward = find_operator<AttentionForward>("tightloop::attention_forward");
  const int64_t size = x.size(-1);
  const bool narrow = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  constexpr int64_t kMost = 65535;  // blocks in two of a grid's dimensions
  return !plain() && narrow && x.size(0) <= kMost && x.size(-2) <= kMost && registered(forward, x) &&
         (size == 32 || size == 64 || size == 128) && is_flat(x);
}

void check(const Tensor& q, const Tensor& k, const KeyMask& mask) {
  TORCH_CHECK(q.size(0) == k.size(0) && q.size(2) == k.size(2) && q.size(3) == k.size(3) &&
                  q.scalar_type() == k.scalar_type() && q.device() == k.device(),
              "attention: queries ", q.sizes(), " and keys ", k.sizes(),
              " must have the same batches, heads, head size, dtype and device");
  TORCH_CHECK(!mask.causal || q.size(1) == k.size(1),
              "attention: a causal mask needs as many keys as queries");
  TORCH_CHECK(
      !mask.lengths.defined() || (mask.lengths.scalar_type() == at::kLong && mask.lengths.dim() == 1 &&
                                  mask.lengths.size(0) == q.size(0) && mask.lengths.device() == q.device()),
      "attention: lengths must be one int64 for each batch, on the device of the queries");
}

AttentionKind kind_of(const KeyMask& mask) {
  if (mask.lengths.defined()) return AttentionKind::kPadding;
  return mask.causal ? AttentionKind::kCausal : AttentionKind::kFull;
}

Tensor attend(const Tensor& queries, const Tensor& kv, const KeyMask& mask, const Dropout& drop) {
  const Parts parts(queries, kv);
  check(parts.q, parts.k, mask);
  check(drop, queries.device());
  if (!attention_fits(queries) || (kv.defined() && !attention_fits(kv)))
    return attention(parts.q, parts.k, parts.v, mask, drop);
  static AttentionCounter counter("Tightloop's kernel");
  counter.count(kind_of(mask));
  const Tensor lengths = mask.lengths.defined() ? mask.lengths.contiguous() : Tensor();
  return AttentionFunction::apply(queries, given(kv), given(lengths), mask.causal, drop.rate,
                                  given(drop.random), drop.site);
}

/// What is added to the scores (B, H, T, S) for a mask; nothing where everything is seen.
Optional score_bias(const Tensor& q, const Tensor& k, const KeyMask& mask) {
  Optional bias;
  if (mask.lengths.defined())
    bias = mask.bias.defined() ? mask.bias : length_bias(mask.lengths, k.size(1), q.scalar_type());
  if (mask.causal) {
    const Tensor later = at::full({q.size(1), q.size(1)}, kNever, q.options()).triu(1);
    bias = bias ? *bias + later : later;
  }
  return bias;
}

}  // namespace

Tensor self_attention(const Tensor& qkv, const KeyMask& mask, const Dropout& drop) {
  TORCH_CHECK(qkv.dim() == 5 && qkv.size(2) == 3, "self_attention: needs (B, T, 3, H, size)");
  return attend(qkv, {}, mask, drop);
}

Tensor cross_attention(const Tensor& q, const Tensor& kv, const KeyMask& mask, const Dropout& drop) {
  TORCH_CHECK(q.dim() == 4 && kv.dim() == 5 && kv.size(2) == 2,
              "cross_attention: needs (B, T, H, size), (B, S, 2, H, size)");
  return attend(q, kv, mask, drop);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                 const Dropout& drop) {
  check(q, k, mask);
  static AttentionCounter by_torch("torch"), step_by_step("step by step");
  const bool steps = plain() || drop.rate > 0;  // torch's drops by a generator's state
  (steps ? step_by_step : by_torch).count(kind_of(mask));
  if (steps) return attention_plain(q, k, v, mask, drop);
  Optional bias;
  if (mask.lengths.defined()) {
    bias = score_bias(q, k, mask)->expand({q.size(0), q.size(2), q.size(1), k.size(1)});
  }
  return at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), bias,
                                          /*dropout_p=*/0, mask.causal && !bias)
      .transpose(1, 2);
}

Tensor attention_plain(const Tensor& q, const Tensor& k, const Tensor& v, const KeyMask& mask,
                       const Dropout& drop) {
  const Tensor scaled = q.transpose(1, 2) * (1 / std::sqrt(static_cast<double>(q.size(3))));
  Tensor scores = at::matmul(scaled, k.permute({0, 2, 3, 1}));
  if (const auto bias = score_bias(q, k, mask)) scores = scores + *bias;
  return at::matmul(dropout(at::softmax(scores, -1), drop), v.transpose(1, 2)).transpose(1, 2);
}

Tensor length_bias(const Tensor& lengths, int64_t S, at::ScalarType dtype) {
  const Tensor padding = at::arange(S, lengths.options()) >= lengths.unsqueeze(1);  // (B, S)
  return (padding.to(dtype) * kNever).view({lengths.size(0), 1, 1, S});
}

}  // namespace tightloop::ops
