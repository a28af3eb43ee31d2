#include "ops/attention/attention_backend.h"

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <utility>

#include "ops/attention/attention_counter.h"
#include "ops/attention/row_attention.h"
#include "ops/config.h"

namespace tightloop::ops {

namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

bool sees_all(const AttentionCall& call) { return !call.causal && !call.documents_BT.defined(); }

/// Torch's attention, or (at::_fused_sdp_choice) which kernel it takes for it.
template <class Operator>
auto by_torch(Operator&& of_torch, const AttentionCall& call, const std::optional<at::Tensor>& mask,
              bool causal) {
  std::optional<WithoutPlans> growing;
  if (call.growing) growing.emplace();
  return of_torch(call.q_BHTS, call.k_BKPS, call.v_BKPS, mask, /*dropout_p=*/0, causal, call.scale,
                  /*enable_gqa=*/call.q_BHTS.size(1) != call.k_BKPS.size(1));
}

std::string kernel_name(int64_t choice) {
  switch (static_cast<at::SDPBackend>(choice)) {
    case at::SDPBackend::flash_attention:
      return "flash";
    case at::SDPBackend::efficient_attention:
      return "memory-efficient";
    case at::SDPBackend::cudnn_attention:
      return "cuDNN";
    case at::SDPBackend::math:
      return "math";
    default:
      return "a kernel of its own";
  }
}

/// Without a mask: all positions, or all up to the query's own.
bool is_unmasked(const AttentionCall& call) {
  return call.drop.rate == 0 && !call.bias_BHTP.defined() && !call.documents_BT.defined() &&
         call.window == 0 && (!call.causal || call.q_BHTS.size(2) == call.k_BKPS.size(2));
}

at::Tensor unmasked(const AttentionCall& call) {
  return by_torch(at::scaled_dot_product_attention, call, {}, call.causal);
}
std::string unmasked_kernel(const AttentionCall& call) {
  return kernel_name(by_torch(at::_fused_sdp_choice, call, {}, call.causal));
}

bool has_no_dropout(const AttentionCall& call) { return call.drop.rate == 0; }

std::optional<at::Tensor> mask_of(const AttentionCall& call) {
  std::optional<at::Tensor> mask;
  if (!sees_all(call)) mask = call.mask();
  if (call.bias_BHTP.defined()) mask = mask ? at::where(*mask, call.bias_BHTP, kHidden) : call.bias_BHTP;
  return mask;
}
at::Tensor masked(const AttentionCall& call) {
  return by_torch(at::scaled_dot_product_attention, call, mask_of(call), /*causal=*/false);
}
std::string masked_kernel(const AttentionCall& call) {
  return kernel_name(by_torch(at::_fused_sdp_choice, call, mask_of(call), /*causal=*/false));
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

AttentionKind kind_of(const AttentionCall& call) {
  if (call.documents_BT.defined()) return AttentionKind::kDocuments;
  if (call.window > 0) return AttentionKind::kWindow;
  return call.causal ? AttentionKind::kCausal : AttentionKind::kFull;
}

/// A backend among those that are asked after it. They are added and never removed, so that a call walks
/// along without a lock.
struct Backend {
  explicit Backend(AttentionBackend one, Backend* next = nullptr)
      : backend(std::move(one)), counter(backend.name), next(next) {}
  const AttentionBackend backend;
  AttentionCounter counter;
  Backend* const next;
};

struct Backends {
  Backend step_by_step_{{"step by step", [](const AttentionCall&) { return true; }, step_by_step}};
  Backend masked_{{"torch with a mask", has_no_dropout, masked, masked_kernel}, &step_by_step_};
  Backend plain{{"torch", is_unmasked, unmasked, unmasked_kernel}, &masked_};
  Backend rows{{"Tightloop's kernel", row_attention_takes, row_attention}, &plain};
  std::atomic<Backend*> first = &rows;
  std::mutex adding;
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
  const std::lock_guard lock(backends().adding);
  backends().first = new Backend(std::move(backend), backends().first);  // for the rest of the process
}

at::Tensor attend(const AttentionCall& call) {
  Backends& all = backends();
  Backend* chosen = plain() ? &all.plain : all.first.load(std::memory_order_acquire);
  while (!chosen->backend.can(call)) chosen = chosen->next;  // the last one can all
  chosen->counter.count(
      kind_of(call), [&] { return chosen->backend.kernel ? chosen->backend.kernel(call) : std::string(); });
  return chosen->backend.run(call);
}

}  // namespace tightloop::ops
