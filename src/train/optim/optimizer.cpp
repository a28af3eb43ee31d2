#include "train/optim/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/interrupt.h"
#include "ops/optim/gradient_norm.h"
#include "train/engine/step_numbers.h"
#include "train/optim/parameter_groups.h"

namespace tightloop {

namespace {

const at::Tensor& tensor_of(const Safetensors& file, const std::string& name, const at::Tensor& like,
                            const std::string& file_name) {
  const auto found = file.tensors.find(name);
  if (file.tensors.empty())
    throw checkpoint_error(
        "'{}' is empty: a checkpoint without the optimizer's state, as 'tightloop average' makes, is no "
        "place to go on "
        "from. A new run can start from its weights: --train.init_from.",
        file_name);
  if (found == file.tensors.end()) throw checkpoint_error("'{}' has no tensor '{}'.", file_name, name);
  if (found->second.sizes() != like.sizes()) {
    throw checkpoint_error("'{}': tensor '{}' has shape [{}], the model needs [{}].", file_name, name,
                           fmt::join(found->second.sizes(), ", "), fmt::join(like.sizes(), ", "));
  }
  return found->second;
}

std::vector<at::Tensor> detached(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const auto& tensor : tensors) result.push_back(tensor.detach());
  return result;
}

}  // namespace

Optimizer::Optimizer(Parameters& parameters, const TrainConfig& config, const ModelConfig& model,
                     at::ScalarType compute_dtype)
    : parameters_(parameters),
      clip_(config.clip),
      several_(config.accumulate > 1),
      set_to_none_(config.set_to_none),
      layers_(parameters),
      lr_(config.optimizer == OptimizerKind::kMuon ? config.matrix_lr * config.lr_scale : config.lr),
      values_(parameters.values()) {
  masters_ = detached(values_);
  rules_ = make_rules(parameters, masters_, config, model, compute_dtype);
  const at::Device device = masters_.front().device();
  if (compute_dtype == at::kHalf)
    scaler_ = std::make_unique<GradScaler>(
        device,
        GradScalerConfig{.initial = config.loss_scale, .growth_interval = config.loss_scale_growth_steps});
  const auto scalar = at::TensorOptions(at::kFloat).device(device);
  count_ = at::zeros({}, scalar);
  norm_ = at::zeros({}, scalar.dtype(at::kDouble)), skipped_ = at::zeros({}, scalar);
  parameters.to(device, compute_dtype);
  if (several_) own_gradients();
}

void Optimizer::drop_gradients() {
  clear_gradients();
  halfway_ = false;
}

void Optimizer::clear_gradients() {
  c10::NoGradGuard no_grad;
  for (const auto& value : values_) {
    if (set_to_none_) {
      value.mutable_grad().reset();
    } else if (value.grad().defined()) {
      value.mutable_grad().zero_();
    }
  }
}

// They are not what backward itself adds to (.grad): sums are fp32, or bf16 would swallow small terms, and a
// pass that finds no memory halfway must not have touched them.
void Optimizer::own_gradients() {
  if (buckets_) return;
  buckets_ = std::make_unique<GradientBuckets>(several_ ? masters_ : detached(values_));
  gradients_ = buckets_->gradients();
}

void Optimizer::reduce_gradients(Processes& processes) {
  if (!processes.several()) return;
  TORCH_CHECK(buckets_, "gradients to be reduced are not the optimizer's own");
  c10::NoGradGuard no_grad;
  buckets_->reduce(processes);
}

void Optimizer::accumulate(bool first) {
  c10::NoGradGuard no_grad;
  std::vector<at::Tensor> fresh;
  for (const auto& value : values_) {
    const at::Tensor& gradient = value.grad();
    fresh.push_back(gradient.defined() ? gradient : at::zeros_like(value));
  }
  if (!buckets_) {
    gradients_ = std::move(fresh);
    if (set_to_none_) clear_gradients();
    return;
  }
  halfway_ = true;
  first ? at::_foreach_copy_(gradients_, fresh) : at::_foreach_add_(gradients_, fresh);
  clear_gradients();
  halfway_ = false;
}

void Optimizer::update(const at::Tensor& rates, const at::Tensor& divisor, const at::Tensor& layer_norms,
                       const at::Tensor& leave_out) {
  c10::NoGradGuard no_grad;
  for (const auto& rule : rules_) rule->reserve();
  std::optional<WeightChange> change;
  if (layer_norms.defined()) {
    change.emplace(layers_, count_.device());
    at::empty({layers_.largest(masters_)}, masters_.front().options());  // as UpdateRule::reserve() does
  }
  const auto raw = ops::gradient_norm(gradients_).to(at::kDouble);
  const auto finite = at::isfinite(raw);
  // Gradients are divided by one number: token count, loss scale and clipping in one. 1e-6 as torch has it.
  auto divide = scaler_ ? divisor * scaler_->factor() : divisor;
  const auto norm = raw / divide;
  if (change) layer_norms[0].copy_(layers_.norms(gradients_) / divide);
  if (clip_ > 0) divide = divide * at::clamp_min((norm + 1e-6) / clip_, 1.0);
  auto keep = finite.logical_and(divisor > 0);
  if (leave_out.defined()) keep = keep.logical_and(leave_out.logical_not());
  const auto count = count_ + keep, skipped = keep.logical_not().to(at::kFloat);
  const auto number = [&](int64_t which) { return rates[which].to(at::kFloat); };
  // In the order of ops::MuonControl.
  const auto control = at::stack({number(StepNumbers::kLrScale), divide.to(at::kFloat), count, skipped,
                                  number(StepNumbers::kMomentum), number(StepNumbers::kDecayScale)});
  halfway_ = true;
  norm_.copy_(norm), count_.copy_(count), skipped_.copy_(skipped);
  for (const auto& rule : rules_) rule->update(gradients_, control, change ? &*change : nullptr);
  if (change) layer_norms[1].copy_(change->ratios());
  if (scaler_) scaler_->update(finite.logical_not());
  if (!buckets_) {
    if (!set_to_none_) at::_foreach_zero_(gradients_);
    gradients_.clear();
  }
  halfway_ = false;
}

at::Tensor Optimizer::step(const Rates& rates, double divisor) {
  std::vector<double> numbers(StepNumbers::kSize);
  numbers[StepNumbers::kLrScale] = rates.lr_scale;
  numbers[StepNumbers::kDecayScale] = rates.decay_scale;
  numbers[StepNumbers::kMomentum] = rates.momentum;
  const auto on = [&](const at::Tensor& tensor) { return tensor.to(count_.device()); };
  update(on(at::tensor(numbers, at::kDouble)), on(at::scalar_tensor(divisor, at::kDouble)));
  return norm_;
}

void Optimizer::publish() {
  c10::NoGradGuard no_grad;
  if (values_.front().scalar_type() != masters_.front().scalar_type()) at::_foreach_copy_(values_, masters_);
}

std::map<std::string, double> Optimizer::group_lrs(const Rates& rates) const {
  std::map<std::string, double> lrs;
  if (rules_.size() > 1)
    for (const auto& rule : rules_) lrs[rule->group()] = rule->lr() * rates.lr_scale;
  return lrs;
}

NamedTensors Optimizer::weights() const {
  NamedTensors named;
  for (size_t i = 0; i < masters_.size(); ++i) named.emplace_back(parameters_.all()[i].name, masters_[i]);
  return named;
}

NamedTensors Optimizer::state() const {
  NamedTensors named{{"count", count_}};
  for (const auto& rule : rules_) std::ranges::move(rule->state(), std::back_inserter(named));
  if (scaler_) std::ranges::move(scaler_->state(), std::back_inserter(named));
  return named;
}

void Optimizer::load(const Safetensors& weights, const Safetensors& state) {
  c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : this->weights())
    tensor.copy_(tensor_of(weights, name, tensor, "model.safetensors"));
  load_state(state);
  publish();
}

void Optimizer::load_state(const Safetensors& state) {
  c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : this->state()) {
    // fp16 after another precision: the loss scale is found afresh.
    if (name.starts_with("scaler.") && !state.tensors.contains(name)) continue;
    tensor.copy_(tensor_of(state, name, tensor, "optimizer.safetensors"));
  }
}

void load_weights(Parameters& parameters, const Safetensors& weights, const std::string& file) {
  c10::NoGradGuard no_grad;
  for (const auto& parameter : parameters.all()) {
    throw_if_interrupted();
    parameter.value.detach().copy_(tensor_of(weights, parameter.name, parameter.value, file));
  }
  for (const auto& [name, tensor] : weights.tensors) {
    if (!parameters.find(name))
      throw checkpoint_error("'{}' has a tensor '{}' that the model lacks.", file, name);
  }
}

}  // namespace tightloop
