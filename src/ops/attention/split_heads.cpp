#include "ops/attention/split_heads.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "ops/attention/rope.h"
#include "ops/norm/rms_norm.h"
#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// There is no CPU kernel: rms_norm and rope have theirs. eps: none where nothing is normed, and then backward
// needs qkv's shape alone.
TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def(
      "split_heads_forward(Tensor qkv, int heads, Tensor cos, Tensor sin, int offset, float? eps,"
      " Tensor? q_weight, Tensor? k_weight, Tensor? positions) -> (Tensor q, Tensor k)");
  m.def(
      "split_heads_backward(Tensor? dq, Tensor? dk, Tensor? dv, Tensor? qkv, int[] shape, int heads,"
      " Tensor cos, Tensor sin, int offset, float? eps, Tensor? q_weight, Tensor? k_weight)"
      " -> (Tensor dqkv, Tensor dq_weight, Tensor dk_weight)");
}

using Optional = std::optional<Tensor>;
using SplitHeadsForward = std::tuple<Tensor, Tensor>(const Tensor&, int64_t, const Tensor&, const Tensor&,
                                                     int64_t, std::optional<double>, const Optional&,
                                                     const Optional&, const Optional&);
using SplitHeadsBackward = std::tuple<Tensor, Tensor, Tensor>(const Optional&, const Optional&,
                                                              const Optional&, const Optional&,
                                                              at::IntArrayRef, int64_t, const Tensor&,
                                                              const Tensor&, int64_t, std::optional<double>,
                                                              const Optional&, const Optional&);

int64_t kv_heads_of(const Tensor& qkv, int64_t heads) { return (qkv.size(2) - heads) / 2; }

const auto& split_kernel() {
  static const auto kernel = find_operator<SplitHeadsForward>("tightloop::split_heads_forward");
  return kernel;
}

struct SplitHeadsFunction : torch::autograd::Function<SplitHeadsFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& qkv, int64_t heads, const Tensor& cos,
                               const Tensor& sin, int64_t offset, std::optional<double> eps,
                               const Optional& q_weight, const Optional& k_weight) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [q, k] = split_kernel().call(qkv, heads, cos, sin, offset, eps, q_weight, k_weight, {});
    context->set_materialize_grads(false);
    context->save_for_backward(
        {eps ? qkv : Tensor(), cos, sin, or_undefined(q_weight), or_undefined(k_weight)});
    context->saved_data["shape"] = qkv.sizes().vec();
    context->saved_data["heads"] = heads;
    context->saved_data["offset"] = offset;
    context->saved_data["eps"] = eps;
    // Made below autograd, values are no view to it: their gradient comes here with the others.
    const int64_t K = kv_heads_of(qkv, heads);
    return {q, k, qkv.narrow(2, heads + K, K)};
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel = find_operator<SplitHeadsBackward>("tightloop::split_heads_backward");
    const auto saved = context->get_saved_variables();
    auto& data = context->saved_data;
    auto [dqkv, dq_weight, dk_weight] =
        kernel.call(given(d[0]), given(d[1]), given(d[2]), given(saved[0]), data["shape"].toIntVector(),
                    data["heads"].toInt(), saved[1], saved[2], data["offset"].toInt(),
                    data["eps"].toOptional<double>(), given(saved[3]), given(saved[4]));
    return {dqkv, Tensor(), Tensor(), Tensor(), Tensor(), Tensor(), dq_weight, dk_weight};
  }
};

void check(const Tensor& qkv, int64_t heads, const Tensor& cos, const Tensor& sin, int64_t offset,
           const std::optional<HeadNorm>& norm, const Tensor& positions) {
  TORCH_CHECK(qkv.dim() == 4 && qkv.size(3) % 2 == 0 && qkv.size(3) > 0,
              "split_heads: qkv must be (batch, time, heads, even head size)");
  TORCH_CHECK(heads > 0 && heads < qkv.size(2) && (qkv.size(2) - heads) % 2 == 0,
              "split_heads: ", qkv.size(2), " heads are not ", heads, " queries and as many keys as values");
  TORCH_CHECK(cos.dim() == 2 && cos.sizes() == sin.sizes() && cos.size(1) == qkv.size(3) / 2 &&
                  cos.device() == qkv.device() && sin.device() == qkv.device(),
              "split_heads: the tables must be (positions, half the head size) on qkv's device");
  if (positions.defined()) check_positions(qkv, positions);
  TORCH_CHECK(offset >= 0 && (positions.defined() || offset + qkv.size(1) <= cos.size(0)),
              "split_heads: positions ", offset, " to ", offset + qkv.size(1), " do not fit tables of ",
              cos.size(0));
  if (!norm) return;
  TORCH_CHECK(norm->q_weight.defined() == norm->k_weight.defined(),
              "split_heads: queries and keys have both a weight or neither");
  for (const Tensor* weight : {&norm->q_weight, &norm->k_weight})
    TORCH_CHECK(!weight->defined() || (weight->dim() == 1 && weight->size(0) == qkv.size(3) &&
                                       weight->device() == qkv.device()),
                "split_heads: a weight must hold one value for each element of a head");
}

bool split_heads_fits(const Tensor& qkv, const Tensor& cos, const Tensor& sin,
                      const std::optional<HeadNorm>& norm) {
  constexpr int64_t kPack = 16,
                    kMostBytes = 32 * kPack;  // a warp's threads have 16 bytes of half a head each
  const int64_t bytes = qkv.size(3) / 2 * qkv.element_size();
  if (!has_kernel(qkv) || !registered(split_kernel(), qkv) || bytes % kPack != 0 || bytes > kMostBytes)
    return false;
  for (const Tensor* table : {&cos, &sin})
    if (table->scalar_type() != at::kFloat || !is_flat(*table)) return false;
  if (!norm || !norm->q_weight.defined()) return true;
  const auto dtype = norm->q_weight.scalar_type();
  return (dtype == qkv.scalar_type() || dtype == at::kFloat) && norm->k_weight.scalar_type() == dtype &&
         is_flat(norm->q_weight) && is_flat(norm->k_weight);
}

template <class Normalize, class Turn>
SplitHeads step_by_step(const Tensor& qkv, int64_t heads, const std::optional<HeadNorm>& norm,
                        Normalize&& normalize, Turn&& turn) {
  const int64_t K = kv_heads_of(qkv, heads);
  const auto parts = qkv.split_with_sizes({heads, K, K}, 2);  // one gradient, where slices would be added
  Tensor q = parts[0], k = parts[1];
  if (norm) {
    q = normalize(q, norm->q_weight, norm->eps);
    k = normalize(k, norm->k_weight, norm->eps);
  }
  return {turn(q), turn(k), parts[2]};
}

}  // namespace

SplitHeads split_heads(const Tensor& qkv, int64_t heads, const Tensor& cos, const Tensor& sin, int64_t offset,
                       const std::optional<HeadNorm>& norm, const Tensor& positions) {
  check(qkv, heads, cos, sin, offset, norm, positions);
  if (!split_heads_fits(qkv, cos, sin, norm))  // in plain mode these two are their twins
    return step_by_step(qkv, heads, norm, rms_norm,
                        [&](const Tensor& x) { return rope(x, cos, sin, offset, positions); });
  const auto weights = norm.value_or(HeadNorm{});
  const auto eps = norm ? std::optional(norm->eps) : std::nullopt;
  const auto q_weight = given(weights.q_weight), k_weight = given(weights.k_weight);
  if (positions.defined()) {
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [q, k] = split_kernel().call(qkv, heads, cos, sin, 0, eps, q_weight, k_weight, positions);
    const int64_t K = kv_heads_of(qkv, heads);
    return {q, k, qkv.narrow(2, heads + K, K)};
  }
  const auto made = SplitHeadsFunction::apply(qkv, heads, cos, sin, offset, eps, q_weight, k_weight);
  return {made[0], made[1], made[2]};
}

SplitHeads split_heads_plain(const Tensor& qkv, int64_t heads, const Tensor& cos, const Tensor& sin,
                             int64_t offset, const std::optional<HeadNorm>& norm, const Tensor& positions) {
  check(qkv, heads, cos, sin, offset, norm, positions);
  return step_by_step(qkv, heads, norm, rms_norm_plain,
                      [&](const Tensor& x) { return rope_plain(x, cos, sin, offset, positions); });
}

}  // namespace tightloop::ops
