#include "train/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "train/update_rules.h"

namespace tightloop {

namespace {

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

Optimizer::Optimizer(Parameters& parameters, const TrainConfig& config, const ModelConfig& model,
                     at::ScalarType compute_dtype)
    : parameters_(parameters),
      clip_(config.clip),
      lr_(config.optimizer == "muon" ? config.matrix_lr * config.lr_scale : config.lr),
      values_(parameters.values()) {
  for (const auto& value : values_) masters_.push_back(value.detach());
  rules_ = make_rules(parameters, masters_, config, model, compute_dtype);
  count_ = at::zeros({}, masters_.front().options());
  parameters.to(masters_.front().device(), compute_dtype);
}

void Optimizer::accumulate() {
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
  for (size_t i = 0; i < gradients_.size(); ++i) gradients_[i] = gradients_[i].to(masters_[i].scalar_type());
  at::_foreach_add_(gradients_, fresh);
}

at::Tensor Optimizer::step(const Rates& rates, double divisor) {
  c10::NoGradGuard no_grad;
  for (size_t i = 0; i < gradients_.size(); ++i) gradients_[i] = gradients_[i].to(masters_[i].scalar_type());
  const auto norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients_))) / divisor;
  // Updates divide gradients by one number: the token count and the clipping in one. 1e-6 as torch has it.
  auto divide = at::zeros({}, count_.options()) + divisor;
  if (clip_ > 0) divide = divide * at::clamp_min((norm + 1e-6) / clip_, 1.0);
  count_.add_(1);
  for (const auto& rule : rules_) rule->update(gradients_, divide, count_, rates);
  gradients_.clear();
  publish();
  return norm;
}

void Optimizer::publish() {
  c10::NoGradGuard no_grad;
  if (values_.front().scalar_type() != masters_.front().scalar_type()) at::_foreach_copy_(values_, masters_);
}

NamedTensors Optimizer::weights() const {
  NamedTensors named;
  for (size_t i = 0; i < masters_.size(); ++i) named.emplace_back(parameters_.all()[i].name, masters_[i]);
  return named;
}

NamedTensors Optimizer::state() const {
  NamedTensors named{{"count", count_}};
  for (const auto& rule : rules_) std::ranges::move(rule->state(), std::back_inserter(named));
  return named;
}

void Optimizer::load(const Safetensors& weights, const Safetensors& state) {
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
