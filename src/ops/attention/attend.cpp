#include "ops/attention/attend.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <deque>
#include <limits>
#include <mutex>

#include "ops/config.h"

namespace tightloop::ops {

namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

bool sees_all(const AttentionCall& call) { return !call.causal && !call.documents_BT.defined(); }

at::Tensor by_torch(const AttentionCall& call, const std::optional<at::Tensor>& mask, bool causal) {
  std::optional<WithoutPlans> growing;
  if (call.growing) growing.emplace();
  return at::scaled_dot_product_attention(call.q_BHTS, call.k_BKPS, call.v_BKPS, mask, /*dropout_p=*/0,
                                          causal, call.scale,
                                          /*enable_gqa=*/call.q_BHTS.size(1) != call.k_BKPS.size(1));
}

/// Without a mask: all positions, or all up to the query's own.
bool is_unmasked(const AttentionCall& call) {
  return call.drop.share == 0 && !call.bias_BHTP.defined() && !call.documents_BT.defined() &&
         call.window == 0 && (!call.causal || call.q_BHTS.size(2) == call.k_BKPS.size(2));
}

at::Tensor unmasked(const AttentionCall& call) { return by_torch(call, {}, call.causal); }

bool has_no_dropout(const AttentionCall& call) { return call.drop.share == 0; }

at::Tensor masked(const AttentionCall& call) {
  std::optional<at::Tensor> mask;
  if (!sees_all(call)) mask = call.mask();
  if (call.bias_BHTP.defined()) mask = mask ? at::where(*mask, call.bias_BHTP, kHidden) : call.bias_BHTP;
  return by_torch(call, mask, /*causal=*/false);
}

// What torch's attention drops follows from a generator's state: a graph that is replayed or a block that is
// computed again would need that state back.
at::Tensor step_by_step(const AttentionCall& call) {
  const int64_t H = call.q_BHTS.size(1), K = call.k_BKPS.size(1);
  const auto for_each_query = [&](const at::Tensor& x) {
    if (H == K) return x;
    return x.unsqueeze(2).expand({-1, -1, H / K, -1, -1}).flatten(1, 2);
  };
  const double scale = call.scale.value_or(1 / std::sqrt(static_cast<double>(call.q_BHTS.size(3))));
  auto scores = at::matmul(call.q_BHTS * scale, for_each_query(call.k_BKPS).transpose(2, 3));
  if (call.bias_BHTP.defined()) scores = scores + call.bias_BHTP;
  if (!sees_all(call)) scores = scores.masked_fill(call.mask().logical_not(), kHidden);
  const auto weights = at::softmax(scores, -1);  // computed in fp32, rounded once
  return at::matmul(dropout(weights, call.drop), for_each_query(call.v_BKPS));
}

struct Backends {
  std::mutex mutex;
  std::deque<AttentionBackend> added;
  const std::deque<AttentionBackend> plain{
      {"torch", is_unmasked, unmasked},
      {"torch with a mask", has_no_dropout, masked},
      {"step by step", [](const AttentionCall&) { return true; }, step_by_step}};
  std::map<std::string, int64_t> used;
};

Backends& backends() {
  static Backends all;
  return all;
}

}  // namespace

WithoutPlans::WithoutPlans() : before_(at::globalContext().userEnabledCuDNNSDP()) {
  at::globalContext().setSDPUseCuDNN(false);
}
WithoutPlans::~WithoutPlans() { at::globalContext().setSDPUseCuDNN(before_); }

void add_attention_backend(AttentionBackend backend) {
  const std::lock_guard lock(backends().mutex);
  backends().added.push_front(std::move(backend));
}

at::Tensor attend(const AttentionCall& call) {
  Backends& all = backends();
  const AttentionBackend* chosen = nullptr;
  {
    const std::lock_guard lock(all.mutex);
    const auto look = [&](const std::deque<AttentionBackend>& some) {
      for (size_t i = 0; !chosen && i < some.size(); ++i)
        if (some[i].can(call)) chosen = &some[i];
    };
    if (!plain()) look(all.added);
    look(all.plain);
    ++all.used[chosen->name];
  }
  return chosen->run(call);
}

std::map<std::string, int64_t> attention_backends_used() {
  const std::lock_guard lock(backends().mutex);
  return backends().used;
}

}  // namespace tightloop::ops
