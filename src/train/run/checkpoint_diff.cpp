#include "train/run/checkpoint_diff.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <set>

#include "core/interrupt.h"

namespace tightloop {

namespace {

constexpr const char* kSettingsKey = "settings";

std::string shape_text(const at::Tensor& tensor) {
  return fmt::format("{}", fmt::join(tensor.sizes().vec(), " x "));
}

/// Elements that are alike, NaN too: a window that is not full has places without a number.
at::Tensor alike(const at::Tensor& a, const at::Tensor& b) {
  return (a == b).logical_or(a.isnan().logical_and(b.isnan()));
}

/// Of numbers where both have some; places where one of them alone has a finite number are counted instead.
TensorDifference difference_of(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes())
    return {.note = fmt::format("other shapes: {} and {}", shape_text(a), shape_text(b))};
  const at::Tensor first = a.to(at::kDouble), second = b.to(at::kDouble);
  const at::Tensor finite = first.isfinite().logical_and(second.isfinite());
  const at::Tensor numbers = first.masked_fill(finite.logical_not(), 0);
  const at::Tensor by = numbers - second.masked_fill(finite.logical_not(), 0);
  const double norm = numbers.norm().item<double>(), largest = by.abs().max().item<double>();
  return {.largest = largest,
          .relative = largest == 0 ? 0
                      : norm > 0   ? by.norm().item<double>() / norm
                                   : INFINITY,
          .not_finite = alike(first, second).logical_or(finite).logical_not().sum().item<int64_t>()};
}

void compare_tensors(const char* file, const Safetensors& a, const Safetensors& b,
                     CheckpointDifference& difference) {
  for (const auto& [name, tensor] : a.tensors) {
    throw_if_interrupted();
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end()) {
      difference.tensors.push_back({.file = file, .name = name, .note = "only in the first"});
    } else if (tensor.sizes() == other->second.sizes() && alike(tensor, other->second).all().item<bool>()) {
      ++difference.same;
    } else {
      auto& found = difference.tensors.emplace_back(difference_of(tensor, other->second));
      found.file = file, found.name = name;
    }
  }
  for (const auto& [name, tensor] : b.tensors)
    if (!a.tensors.contains(name))
      difference.tensors.push_back({.file = file, .name = name, .note = "only in the second"});
}

std::map<std::string, std::string> settings_in(const nlohmann::json& metadata) {
  if (!metadata.contains(kSettingsKey)) return {};
  return values_in(metadata[kSettingsKey].get<std::string>());
}

}  // namespace

CheckpointDifference compare_checkpoints(const Checkpoint& a, const Checkpoint& b) {
  CheckpointDifference difference;
  compare_tensors("model", a.weights, b.weights, difference);
  compare_tensors("optimizer", a.optimizer, b.optimizer, difference);
  auto was = settings_in(a.metadata), is = settings_in(b.metadata);
  std::set<std::string> keys;
  for (const auto* side : {&was, &is})
    for (const auto& [key, value] : *side) keys.insert(key);
  for (const auto& key : keys)
    if (was[key] != is[key]) difference.settings.push_back({key, was[key], is[key]});
  keys.clear();
  for (const auto* side : {&a.metadata, &b.metadata})
    for (const auto& [key, value] : side->items()) keys.insert(key);
  keys.erase(kSettingsKey);
  for (const auto& key : keys) {
    const auto first = a.metadata.value(key, nlohmann::json()),
               second = b.metadata.value(key, nlohmann::json());
    if (first != second) difference.metadata[key] = {first, second};
  }
  return difference;
}

}  // namespace tightloop
