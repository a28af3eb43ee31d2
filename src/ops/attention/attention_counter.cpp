#include "ops/attention/attention_counter.h"

#include <mutex>
#include <utility>

namespace tightloop::ops {

namespace {

constexpr const char* kKindNames[] = {"full", "causal", "window", "documents", "padding"};
static_assert(std::size(kKindNames) == static_cast<size_t>(AttentionKind::kCount));

struct Counters {
  std::mutex mutex;
  std::vector<AttentionCounter*> all;
};

Counters& counters() {
  static Counters every;
  return every;
}

}  // namespace

AttentionCounter::AttentionCounter(std::string backend) : backend_(std::move(backend)) {
  const std::lock_guard lock(counters().mutex);
  counters().all.push_back(this);
}

void AttentionCounter::count(AttentionKind kind, const std::function<std::string()>& kernel) {
  const auto k = static_cast<size_t>(kind);
  if (runs_[k].fetch_add(1, std::memory_order_relaxed) > 0 || !kernel) return;
  std::string name = kernel();
  const std::lock_guard lock(counters().mutex);
  kernels_[k] = std::move(name);
}

std::vector<AttentionUse> attention_used() {
  const std::lock_guard lock(counters().mutex);
  std::vector<AttentionUse> used;
  for (size_t k = 0; k < AttentionCounter::kKinds; ++k)
    for (const auto* counter : counters().all)
      if (const int64_t count = counter->runs_[k])
        used.push_back({kKindNames[k], counter->backend_, counter->kernels_[k], count});
  return used;
}

void forget_attention_used() {
  const std::lock_guard lock(counters().mutex);
  for (auto* counter : counters().all)
    for (auto& runs : counter->runs_) runs = 0;
}

std::string attention_text() {
  std::string text;
  for (const auto& use : attention_used()) {
    const bool has_by = use.backend.find(" by ") != std::string::npos;  // "step by step"
    text += (text.empty() ? "" : ", ") + use.kind + (has_by ? " " : " by ") + use.by();
  }
  return text;
}

}  // namespace tightloop::ops
