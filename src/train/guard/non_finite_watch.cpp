// As in report/flop_counter.cpp.
#ifndef NDEBUG
#define NDEBUG
#endif

#include "train/guard/non_finite_watch.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/ops/isfinite.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tightloop {

namespace {

/// What the callbacks of all threads share: those of a GPU's backward pass come from another one.
struct Seen {
  std::mutex mutex;
  std::unordered_map<const void*, std::string> weights;  // by where their memory starts
  std::string last_weight;
  std::optional<FirstNonFinite> first, first_nan;
};
Seen* seen = nullptr;

bool looked_at(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_floating_point() && tensor.layout() == at::kStrided &&
         !tensor.is_meta() && tensor.numel() > 0;
}

template <class Take>
void for_each_tensor(const c10::IValue& value, const Take& take) {
  if (value.isTensor()) {
    if (looked_at(value.toTensor())) take(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector())
      if (looked_at(tensor)) take(tensor);
  }
}

/// They hand out memory as it is, or write infinity on purpose (masks).
bool is_exempt(std::string_view name) {
  static constexpr std::array kPrefixes{
      "empty",      "new_empty", "full",       "new_full",     "fill",       "masked_fill", "resize",
      "set_",       "where",     "view",       "_unsafe_view", "as_strided", "transpose",   "t",
      "permute",    "select",    "slice",      "narrow",       "detach",     "alias",       "expand",
      "reshape",    "unsqueeze", "squeeze",    "split",        "chunk",      "unbind",      "flatten",
      "contiguous", "resolve_",  "result_type"};
  if (!name.starts_with("aten::")) return false;
  name.remove_prefix(6);
  return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) {
    return prefix == "t" ? name == "t" : name.starts_with(prefix);
  });
}

struct CallBegan : at::ObserverContext {
  bool inputs_finite = true, reads_weight = false;
  std::string weight;
  std::vector<at::Tensor> written;
};

// What an operator only writes to may hold anything before.
std::unique_ptr<at::ObserverContext> call_began(const at::RecordFunction& call) {
  const at::DisableRecordFunctionGuard not_our_own;
  c10::NoGradGuard no_grad;
  auto began = std::make_unique<CallBegan>();
  if (is_exempt(call.name())) return nullptr;
  const auto schema = call.operator_schema();
  const auto inputs = call.inputs();
  const std::lock_guard lock(seen->mutex);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool written = schema && i < schema->arguments().size() && schema->arguments()[i].alias_info() &&
                         schema->arguments()[i].alias_info()->isWrite();
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      const auto weight = seen->weights.find(tensor.storage().data());
      if (weight != seen->weights.end()) {
        seen->last_weight = weight->second;
        began->reads_weight = true;
      }
      if (written) began->written.push_back(tensor);
      if (!written && began->inputs_finite && count_non_finite(tensor) > 0) began->inputs_finite = false;
    });
  }
  began->weight = seen->last_weight;
  return began;
}

void call_ended(const at::RecordFunction& call, at::ObserverContext* context) {
  if (!context) return;
  const at::DisableRecordFunctionGuard not_our_own;
  c10::NoGradGuard no_grad;
  const auto& began = static_cast<const CallBegan&>(*context);
  const std::lock_guard lock(seen->mutex);
  if (seen->first) return;
  bool finite = true, nan = false;
  const auto look = [&](const at::Tensor& tensor) {
    if (count_non_finite(tensor) == 0) return;
    finite = false;
    nan = nan || tensor.isnan().any().item<bool>();
  };
  for (const c10::IValue& output : call.outputs()) for_each_tensor(output, look);
  for (const at::Tensor& tensor : began.written) look(tensor);
  if (finite) return;
  std::string name = call.name();
  if (name.starts_with("aten::")) name.erase(0, 6);
  const FirstNonFinite found{name, began.weight, began.reads_weight};
  if (began.inputs_finite) seen->first = found;
  if (nan && !seen->first_nan) seen->first_nan = found;
}

}  // namespace

int64_t count_non_finite(const at::Tensor& tensor) {
  return tensor.numel() - at::isfinite(tensor).sum().item<int64_t>();
}

NonFiniteWatch::NonFiniteWatch(const NamedTensors& weights) {
  seen = new Seen;
  for (const auto& [name, tensor] : weights) seen->weights.emplace(tensor.storage().data(), name);
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(call_began, call_ended)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

NonFiniteWatch::~NonFiniteWatch() {
  at::removeCallback(handle_);
  delete std::exchange(seen, nullptr);
}

std::optional<FirstNonFinite> NonFiniteWatch::first() const {
  const std::lock_guard lock(seen->mutex);
  return seen->first ? seen->first : seen->first_nan;
}

}  // namespace tightloop
