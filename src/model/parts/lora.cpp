#include "model/parts/lora.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace tightloop {

namespace {

constexpr const char *kA = ".lora_a", *kB = ".lora_b";

bool matches(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(
      patterns, [&](const std::string& pattern) { return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
}

void check_patterns(const LoraConfig& config, const std::vector<std::string>& matrices) {
  for (const auto& pattern : config.layers) {
    if (std::ranges::any_of(matrices, [&](const auto& name) { return matches({pattern}, name); })) continue;
    const auto guess = nearest(pattern, matrices);
    throw usage_error(
        "lora.layers: '{}' names no matrix of this model.{} Its matrices: {}.", pattern,
        guess ? fmt::format(" Did you mean '{}'?", *guess) : "",
        fmt::join(matrices.begin(), matrices.begin() + std::min<size_t>(8, matrices.size()), ", "));
  }
}

}  // namespace

void LoraConfig::describe(Fields& fields) {
  fields.add("rank", rank, "Rank of the adapters; 0: none, the weights themselves are trained")
      .range(0, 1 << 14);
  fields.add("alpha", alpha, "The adapter's output is scaled by alpha / rank").range(0, 1e6);
  fields.add("layers", layers,
             "Weights that get an adapter, by name or pattern; all others stay as they are");
}

Adapters::Adapters(Parameters& model, const LoraConfig& config, uint64_t seed)
    : own_(seed), scale_(config.scale()) {
  std::vector<std::string> matrices;
  for (const auto& parameter : model.all())
    if (parameter.value.dim() >= 2) matrices.push_back(parameter.name);
  check_patterns(config, matrices);
  for (const auto& parameter : model.all()) {
    const auto& name = parameter.name;
    const auto& value = parameter.value;
    value.set_requires_grad(false);
    frozen_.emplace_back(name, value.detach());
    if (value.dim() < 2 || !matches(config.layers, name)) continue;
    auto a_shape = value.sizes().vec(), b_shape = a_shape;
    *(a_shape.end() - 2) = config.rank, b_shape.back() = config.rank;
    const double std = 1 / std::sqrt(static_cast<double>(a_shape.back()));
    const auto a = own_.add(name + kA, a_shape, {Init::kNormal, std}, ParameterRole::kMatrix);
    const auto b = own_.add(name + kB, b_shape, {Init::kZeros}, ParameterRole::kMatrix);
    adapted_.push_back({value, value.detach(), a, b});
  }
}

void Adapters::refresh() {
  for (auto& [handle, base, a, b] : adapted_) {
    if (base.scalar_type() != a.scalar_type() || base.device() != a.device()) base = base.to(a.options());
    handle.detach_();
    if (handle.is_alias_of(base) || handle.scalar_type() != base.scalar_type() ||
        handle.device() != base.device())
      handle.set_data(at::empty_like(base));
    handle.copy_(base + scale_ * at::matmul(b, a));
  }
}

void merge_adapters(Safetensors& weights, const LoraConfig& config) {
  c10::NoGradGuard no_grad;
  for (auto& [name, tensor] : weights.tensors) {
    const auto a = weights.tensors.find(name + kA), b = weights.tensors.find(name + kB);
    if (a == weights.tensors.end() || b == weights.tensors.end()) continue;
    tensor = tensor + config.scale() * at::matmul(b->second, a->second);
  }
  drop_adapters(weights);
}

void drop_adapters(Safetensors& weights) {
  std::erase_if(weights.tensors,
                [](const auto& entry) { return entry.first.ends_with(kA) || entry.first.ends_with(kB); });
}

}  // namespace tightloop
