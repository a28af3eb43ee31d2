#include "train/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "core/error.h"

namespace tightloop {

namespace {

std::vector<at::Tensor> pick(const std::vector<at::Tensor>& from, const std::vector<size_t>& indices) {
  std::vector<at::Tensor> picked;
  for (const size_t index : indices) picked.push_back(from[index]);
  return picked;
}

const at::Tensor& tensor_of(const Safetensors& file, const std::string& name, const at::Tensor& like,
                            const std::string& file_name) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) throw checkpoint_error("'{}' has no tensor '{}'.", file_name, name);
  if (found->second.sizes() != like.sizes()) {
    throw checkpoint_error("'{}': tensor '{}' has shape [{}], the model needs [{}].", file_name, name,
                           fmt::join(found->second.sizes(), ", "), fmt::join(like.sizes(), ", "));
  }
  return found->second;
}

}  // namespace

AdamW::AdamW(Parameters& parameters, const TrainConfig& config, at::ScalarType compute_dtype)
    : parameters_(parameters), config_(config), values_(parameters.values()) {
  for (size_t i = 0; i < values_.size(); ++i) {
    masters_.push_back(values_[i].detach());
    first_.push_back(at::zeros_like(masters_[i]));
    second_.push_back(at::zeros_like(masters_[i]));
    (parameters.all()[i].decay ? decayed_ : plain_).push_back(i);
  }
  count_ = at::zeros({}, masters_.front().options());
  parameters.to(masters_.front().device(), compute_dtype);
}

void AdamW::accumulate() {
  c10::NoGradGuard no_grad;
  std::vector<at::Tensor> fresh;
  for (const auto& value : values_) {
    auto& gradient = value.mutable_grad();
    fresh.push_back(gradient.defined() ? gradient : at::zeros_like(value));
    gradient.reset();
  }
  if (gradients_.empty()) {
    gradients_ = std::move(fresh);
    return;
  }
  // The second micro-batch: from here sums are kept in fp32, or bf16 would swallow small terms.
  for (auto& gradient : gradients_) gradient = gradient.to(at::kFloat);
  at::_foreach_add_(gradients_, fresh);
}

at::Tensor AdamW::step(double lr, int64_t tokens) {
  c10::NoGradGuard no_grad;
  for (auto& gradient : gradients_) gradient = gradient.to(at::kFloat);
  const auto norm =
      at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients_))) / static_cast<double>(tokens);
  // The fused update divides gradients by `divisor`: the token count and the clipping in one.
  auto divisor = at::zeros({}, count_.options()) + static_cast<double>(tokens);
  if (config_.clip > 0) divisor = divisor * at::clamp_min(norm / config_.clip, 1.0);
  count_.add_(1);
  const auto update = [&](const std::vector<size_t>& group, double decay) {
    if (group.empty()) return;
    auto masters = pick(masters_, group), first = pick(first_, group), second = pick(second_, group);
    const std::vector<at::Tensor> counts(group.size(), count_);
    at::_fused_adamw_(masters, pick(gradients_, group), first, second, {}, counts, lr, config_.beta1,
                      config_.beta2, decay, config_.eps, /*amsgrad=*/false, /*maximize=*/false, divisor);
  };
  update(decayed_, config_.weight_decay);
  update(plain_, 0.0);
  gradients_.clear();
  publish();
  return norm;
}

void AdamW::publish() {
  c10::NoGradGuard no_grad;
  if (values_.front().scalar_type() != at::kFloat) at::_foreach_copy_(values_, masters_);
}

NamedTensors AdamW::weights() const {
  NamedTensors named;
  for (size_t i = 0; i < masters_.size(); ++i) named.emplace_back(parameters_.all()[i].name, masters_[i]);
  return named;
}

NamedTensors AdamW::state() const {
  NamedTensors named{{"count", count_}};
  for (size_t i = 0; i < masters_.size(); ++i) {
    const auto& name = parameters_.all()[i].name;
    named.emplace_back("first." + name, first_[i]);
    named.emplace_back("second." + name, second_[i]);
  }
  return named;
}

void AdamW::load(const Safetensors& weights, const Safetensors& state) {
  c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : this->weights())
    tensor.copy_(tensor_of(weights, name, tensor, "model.safetensors"));
  for (const auto& [name, tensor] : this->state())
    tensor.copy_(tensor_of(state, name, tensor, "optimizer.safetensors"));
  publish();
}

void load_weights(Parameters& parameters, const Safetensors& weights, const std::string& file) {
  c10::NoGradGuard no_grad;
  for (const auto& parameter : parameters.all()) {
    parameter.value.detach().copy_(tensor_of(weights, parameter.name, parameter.value, file));
  }
  for (const auto& [name, tensor] : weights.tensors) {
    if (!parameters.find(name))
      throw checkpoint_error("'{}' has a tensor '{}' that the model lacks.", file, name);
  }
}

}  // namespace tightloop
