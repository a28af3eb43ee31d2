// torch's libraries are built with it; without it, RecordFunction::inputs() checks a member that they never
// set.
#ifndef NDEBUG
#define NDEBUG
#endif

#include "train/report/flop_counter.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string_view>

namespace tightloop {

namespace {

std::atomic<double> total = 0;  // the backward pass of a GPU has a thread of its own
thread_local int depth = 0;     // counted operators within each other: autocast and fallbacks call once more

/// torch's own count (with_flops) knows neither attention nor addmm_.
std::optional<double> flops_of(const at::RecordFunction& call) {
  std::string_view name = call.name();
  const auto input = [&](size_t i) -> const at::Tensor& { return call.inputs()[i].toTensor(); };
  if (name.starts_with("tightloop::attention_")) {  // queries (B, T, H, size), keys (B, S, H, size)
    const bool backward = name.ends_with("_backward");
    const at::Tensor &q = input(backward ? 3 : 0), &k = input(backward ? 4 : 1);
    return (backward ? 8.0 : 4.0) * static_cast<double>(q.numel()) * static_cast<double>(k.size(1));
  }
  if (name == "tightloop::product")  // a (M, K), b (K, N)
    return 2.0 * static_cast<double>(input(0).numel()) * static_cast<double>(input(1).size(1));
  const bool by_rows = name.starts_with("tightloop::row_attention_");
  if (!by_rows && !name.starts_with("aten::")) return {};
  name.remove_prefix(name.find("::") + 2);
  if (by_rows || (name.starts_with("_scaled_dot_product_") && name.find("attention") != name.npos &&
                  name.find("_math") == name.npos)) {
    const bool backward = name.ends_with("_backward");
    const at::Tensor &q = input(backward ? 1 : 0), &k = input(backward ? 2 : 1);
    return (backward ? 8.0 : 4.0) * static_cast<double>(q.numel()) * static_cast<double>(k.size(-2));
  }
  if (name.ends_with('_')) name.remove_suffix(1);
  size_t first = 0;
  if (name == "addmm" || name == "baddbmm")
    first = 1;
  else if (name != "mm" && name != "bmm" && name != "_grouped_mm" && name != "_scaled_mm")
    return {};
  return 2.0 * static_cast<double>(input(first).numel()) * static_cast<double>(input(first + 1).size(-1));
}

struct Counted : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> began(const at::RecordFunction& call) {
  const auto flops = flops_of(call);
  if (!flops) return nullptr;
  if (depth++ == 0) total += *flops;
  return std::make_unique<Counted>();
}

void ended(const at::RecordFunction&, at::ObserverContext* counted) {
  if (counted) --depth;
}

}  // namespace

FlopCounter::FlopCounter() {
  total = 0;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(began, ended).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}
FlopCounter::~FlopCounter() { at::removeCallback(handle_); }

double FlopCounter::count() const { return total; }

}  // namespace tightloop
