#include "train/optim/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/square.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/interrupt.h"
#include "dist/processes.h"
#include "ops/optim/gradient_norm.h"
#include "train/engine/step_numbers.h"
#include "train/optim/gradient_buckets.h"
#include "train/optim/gradient_exchange.h"
#include "train/optim/parameter_groups.h"
#include "train/optim/state_slice.h"
#include "train/optim/weight_gather.h"

namespace tightloop {

namespace {

std::vector<at::Tensor> detached(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const auto& tensor : tensors) result.push_back(tensor.detach());
  return result;
}

Processes* others_of(const OptimizerSharing& sharing) {
  return sharing.processes && sharing.processes->several() ? sharing.processes : nullptr;
}

}  // namespace

Optimizer::~Optimizer() {
  if (gather_) parameters_.set_before_block({});
}

Optimizer::Optimizer(Parameters& parameters, const TrainConfig& config, const ModelConfig& model,
                     at::ScalarType compute_dtype, const OptimizerSharing& sharing)
    : parameters_(parameters),
      clip_(config.clip),
      several_(config.accumulate > 1),
      set_to_none_(config.set_to_none),
      processes_(others_of(sharing)),
      shards_gradients_(processes_ && sharing.dist.shard == Sharding::kGradients),
      layers_(parameters),
      lr_(config.optimizer == OptimizerKind::kMuon ? config.matrix_lr * config.lr_scale : config.lr),
      values_(parameters.values()),
      own_(std::make_unique<OwnWeights>()) {
  const at::Device device = values_.front().device();
  if (several_ || processes_) {
    const ShardPlan shards = plan(config, sharing.dist, compute_dtype);
    shards.sharded() ? take_shard(shards, compute_dtype) : take_all(compute_dtype);
    buckets_ = std::make_unique<GradientBuckets>(
        shards, detached(values_),
        shards_gradients_ ? GradientBuckets::Keep::kOwn : GradientBuckets::Keep::kAll);
    exchange_ = std::make_unique<GradientExchange>(values_, *buckets_, processes_, set_to_none_);
    gradients_ = buckets_->own();
  } else {
    take_all(compute_dtype);
  }
  std::vector<size_t> owners;
  for (const auto& piece : own_->pieces) owners.push_back(piece.parameter);
  own_layers_ = std::make_unique<Layers>(layers_.of_pieces(owners));
  rules_ = make_rules(parameters, *own_, config, model, compute_dtype);
  if (compute_dtype == at::kHalf)
    scaler_ = std::make_unique<GradScaler>(
        device,
        GradScalerConfig{.initial = config.loss_scale, .growth_interval = config.loss_scale_growth_steps});
  const auto scalar = at::TensorOptions(at::kFloat).device(device);
  count_ = at::zeros({}, scalar);
  norm_ = at::zeros({}, scalar.dtype(at::kDouble)), skipped_ = at::zeros({}, scalar);
}

// Gradients do not add up where backward itself puts them (.grad): sums are fp32, or bf16 would swallow small
// terms, and a pass that finds no memory halfway must not have touched them.
ShardPlan Optimizer::plan(const TrainConfig& config, const DistConfig& dist,
                          at::ScalarType compute_dtype) const {
  const bool wide = several_ || dist.reduce == ReduceDtype::kFp32;
  std::vector<PlannedParameter> all;
  for (const auto& parameter : parameters_.all())
    all.push_back({.size = parameter.value.numel(),
                   .dtype = wide ? parameter.value.scalar_type() : compute_dtype,  // fp32, as masters are
                   .matrices = takes_muon(parameter, config) ? matrices_in(parameter)
                                                             : std::vector<PlannedParameter::Matrix>()});
  return {all,
          {.bytes = std::llround(dist.bucket_mb * (1 << 20)),
           .world = processes_ ? processes_->world() : 1,
           .rank = processes_ ? processes_->rank() : 0,
           .sharded = processes_ && dist.shard != Sharding::kNone}};
}

/// The parameters, fp32 until now, are the masters.
void Optimizer::take_all(at::ScalarType compute_dtype) {
  own_->masters = detached(values_), own_->values = values_;
  for (size_t i = 0; i < values_.size(); ++i) own_->pieces.push_back({i, 0, values_[i].numel()});
  parameters_.to(values_.front().device(), compute_dtype);
}

/// Of fp32 masters, those that this process updates stay. Parameter by parameter, and before gradients have
/// memory: so that a process never holds more than it does later.
void Optimizer::take_shard(const ShardPlan& plan, at::ScalarType compute_dtype) {
  c10::NoGradGuard no_grad;
  std::vector<std::vector<size_t>> own_of(values_.size());  // by parameter
  for (size_t i = 0; i < plan.own().size(); ++i) {
    own_->pieces.push_back(plan.own()[i].piece);
    own_of[own_->pieces.back().parameter].push_back(i);
  }
  own_->masters.resize(own_->pieces.size());
  for (size_t p = 0; p < values_.size() && compute_dtype != at::kFloat; ++p) {
    const at::Tensor whole = values_[p].detach().view({-1});
    for (const size_t i : own_of[p])
      own_->masters[i] = whole.narrow(0, own_->pieces[i].begin, own_->pieces[i].size()).clone();
    values_[p].set_data(values_[p].detach().to(compute_dtype));
  }
  gather_ = std::make_unique<WeightGather>(values_, plan, layers_, *processes_);
  parameters_.set_before_block([this](int64_t layer) { gather_->wait_block(static_cast<size_t>(layer)); });
  own_->values = gather_->own();
  if (compute_dtype == at::kFloat) own_->masters = own_->values;
}

bool Optimizer::halfway() const { return halfway_ || (exchange_ && exchange_->touched()); }

void Optimizer::drop_gradients() {
  clear_gradients();
  if (exchange_) exchange_->drop();
  halfway_ = false;
}

void Optimizer::drop_capture() {
  drop_gradients();
  if (gather_) gather_->drop();
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

void Optimizer::watch_waits(const AroundWait& around) {
  if (gather_) gather_->watch_waits(around);
  if (exchange_) exchange_->watch_waits(around);
}

void Optimizer::begin_weights(bool by_block) {
  if (!gather_) return;
  gather_->start();
  by_block ? gather_->wait_outside() : gather_->wait_all();
}

void Optimizer::refresh_weights() { begin_weights(/*by_block=*/false); }

void Optimizer::begin_gradients(const Place& place) {
  if (processes_ && (place.last || shards_gradients_)) exchange_->begin(place.first);
}

void Optimizer::accumulate(const Place& place) {
  c10::NoGradGuard no_grad;
  if (gather_) gather_->wait_all();  // also where the model has not asked for a block
  if (buckets_) {
    exchange_->collect(place.first);
    if (place.last && processes_) return;  // finish_gradients() is to come
    if (shards_gradients_) return exchange_->finish();
    return exchange_->drop();
  }
  std::vector<at::Tensor> fresh;
  for (const auto& value : values_) {
    const at::Tensor& gradient = value.grad();
    fresh.push_back(gradient.defined() ? gradient : at::zeros_like(value));
  }
  gradients_ = std::move(fresh);
  if (set_to_none_) clear_gradients();
}

void Optimizer::finish_gradients() {
  if (processes_) exchange_->finish();
}

void Optimizer::sum_over_shards(const at::Tensor& squares) const {
  if (sharded()) processes_->sum_({squares});
}

at::Tensor Optimizer::whole_norm(const at::Tensor& own) const {
  if (!sharded()) return own.to(at::kDouble);
  const at::Tensor squares = at::square(own.to(at::kDouble));
  sum_over_shards(squares);
  return at::sqrt(squares);
}

void Optimizer::update(const at::Tensor& rates, const at::Tensor& divisor, const at::Tensor& layer_norms,
                       const at::Tensor& leave_out) {
  c10::NoGradGuard no_grad;
  for (const auto& rule : rules_) rule->reserve();
  std::optional<WeightChange> change;
  if (layer_norms.defined()) {
    change.emplace(*own_layers_, count_.device());
    at::empty({own_layers_->largest(own_->masters)}, norm_.options().dtype(at::kFloat));  // as reserve() does
  }
  const auto raw =
      whole_norm(gradients_.empty() ? at::zeros({}, count_.options()) : ops::gradient_norm(gradients_));
  const auto finite = at::isfinite(raw);
  // Gradients are divided by one number: token count, loss scale and clipping in one. 1e-6 as torch has it.
  auto divide = scaler_ ? divisor * scaler_->factor() : divisor;
  const auto norm = raw / divide;
  if (change) {
    const at::Tensor squares = own_layers_->squares(gradients_, count_.device());
    sum_over_shards(squares);
    layer_norms[0].copy_(at::sqrt(squares) / divide);
  }
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
  if (change) {
    sum_over_shards(change->squares());
    layer_norms[1].copy_(change->ratios());
  }
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
  if (values_.front().scalar_type() != at::kFloat && !own_->masters.empty())
    at::_foreach_copy_(own_->values, own_->masters);
  refresh_weights();
}

std::map<std::string, double> Optimizer::group_lrs(const Rates& rates) const {
  std::map<std::string, double> lrs;
  if (rules_.size() > 1)
    for (const auto& rule : rules_) lrs[rule->group()] = rule->lr() * rates.lr_scale;
  return lrs;
}

std::vector<StateSlice> Optimizer::weight_slices() const {
  std::vector<StateSlice> slices;
  for (size_t i = 0; i < own_->pieces.size(); ++i) {
    const ParameterPiece& piece = own_->pieces[i];
    const Parameter& parameter = parameters_.all()[piece.parameter];
    slices.push_back({parameter.name, parameter.value.sizes().vec(), piece.begin, own_->masters[i]});
  }
  return slices;
}

std::vector<StateSlice> Optimizer::state_slices() const {
  std::vector<StateSlice> slices{whole_slice("count", count_)};
  for (const auto& rule : rules_) std::ranges::move(rule->state(), std::back_inserter(slices));
  if (scaler_)
    for (const auto& [name, tensor] : scaler_->state()) slices.push_back(whole_slice(name, tensor));
  return slices;
}

NamedTensors Optimizer::whole(const std::vector<StateSlice>& slices) const {
  if (sharded()) return gather_whole(slices, *processes_);
  NamedTensors named;
  for (const auto& slice : slices) named.emplace_back(slice.name, slice.values);
  return named;
}

NamedTensors Optimizer::weights() const { return whole(weight_slices()); }

NamedTensors Optimizer::state() const { return whole(state_slices()); }

void Optimizer::load(const Safetensors& weights, const Safetensors& state) {
  load_slices(weight_slices(), weights, "model.safetensors");
  load_state(state);
  publish();
}

void Optimizer::load_state(const Safetensors& state) {
  auto slices = state_slices();
  // fp16 after another precision: the loss scale is found afresh.
  std::erase_if(slices, [&](const StateSlice& slice) {
    return slice.name.starts_with("scaler.") && !state.tensors.empty() && !state.tensors.contains(slice.name);
  });
  load_slices(slices, state, "optimizer.safetensors");
}

void load_weights(Parameters& parameters, const Safetensors& weights, const std::string& file) {
  c10::NoGradGuard no_grad;
  for (const auto& parameter : parameters.all()) {
    throw_if_interrupted();
    load_slices({whole_slice(parameter.name, parameter.value)}, weights, file);
  }
  for (const auto& [name, tensor] : weights.tensors) {
    if (!parameters.find(name))
      throw checkpoint_error("'{}' has a tensor '{}' that the model lacks.", file, name);
  }
}

}  // namespace tightloop
