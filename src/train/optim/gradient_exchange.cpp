#include "train/optim/gradient_exchange.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

namespace tightloop {

/// Called by autograd when a parameter's gradient is there.
struct GradientExchange::Hook : torch::autograd::PostAccumulateGradHook {
  Hook(GradientExchange& exchange, size_t parameter) : exchange(exchange), parameter(parameter) {}
  void operator()(const torch::autograd::Variable&) override {
    const std::lock_guard lock(exchange.mutex_);
    if (!exchange.active_) return;
    c10::NoGradGuard no_grad;
    exchange.take(parameter, exchange.first_);
    exchange.start_complete();
  }
  GradientExchange& exchange;
  const size_t parameter;
};

GradientExchange::GradientExchange(std::vector<at::Tensor> parameters, GradientBuckets& buckets,
                                   Processes* processes, bool set_to_none)
    : parameters_(std::move(parameters)),
      buckets_(buckets),
      processes_(processes),
      set_to_none_(set_to_none),
      keeps_own_(buckets.gradients().empty()),
      buckets_of_(parameters_.size()) {
  for (size_t b = 0; b < buckets_.buckets().size(); ++b)
    for (const auto& piece : buckets_.buckets()[b].extent->pieces) buckets_of_[piece.parameter].push_back(b);
  reset();
  if (!processes_) return;
  for (size_t i = 0; i < parameters_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i], std::make_unique<Hook>(*this, i));
}

GradientExchange::~GradientExchange() {
  if (!processes_) return;
  for (const auto& parameter : parameters_)
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

void GradientExchange::drop() {
  const std::lock_guard lock(mutex_);
  reset();
}

void GradientExchange::reset() {
  active_ = touched_ = false, next_ = 0;
  taken_.assign(parameters_.size(), false);
  missing_.clear();
  for (const auto& bucket : buckets_.buckets()) missing_.push_back(bucket.extent->pieces.size());
  under_way_.clear();
}

void GradientExchange::begin(bool first) {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(processes_, "gradients of a process that is alone do not travel");
  active_ = true, first_ = first;
}

void GradientExchange::clear(size_t parameter) {
  at::Tensor& gradient = parameters_[parameter].mutable_grad();
  if (!gradient.defined()) return;
  if (set_to_none_) {
    gradient.reset();
  } else {
    gradient.zero_();
  }
}

void GradientExchange::take(size_t parameter, bool first) {
  TORCH_CHECK(!taken_[parameter], "backward has made the gradient of a parameter twice");
  touched_ = true;
  for (const size_t bucket : buckets_of_[parameter]) {
    buckets_.put(bucket, parameter, parameters_[parameter].grad(), first);
    --missing_[bucket];
  }
  taken_[parameter] = true;
  clear(parameter);
}

void GradientExchange::start_complete() {
  for (; next_ < missing_.size() && missing_[next_] == 0; ++next_) start(next_);
}

void GradientExchange::start(size_t bucket) {
  if (keeps_own_ && under_way_.size() >= kUnderWay) {
    if (around_wait_) around_wait_(true);
    under_way_.front().wait();
    if (around_wait_) around_wait_(false);
    under_way_.pop_front();
  }
  under_way_.push_back(buckets_.reduce(bucket, *processes_, first_));
}

void GradientExchange::collect(bool first) {
  c10::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  first_ = first;
  if (!active_ && !keeps_own_) return collect_all(first);
  for (size_t i = parameters_.size(); i-- > 0;) {
    if (taken_[i]) continue;
    take(i, first);
    // It travels while the rest is added up, and where nobody keeps whole buckets makes room for it.
    if (active_ || keeps_own_) start_complete();
  }
}

// In few launches.
void GradientExchange::collect_all(bool first) {
  std::vector<at::Tensor> fresh;
  for (const auto& parameter : parameters_)
    fresh.push_back(parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter));
  touched_ = true;
  first ? at::_foreach_copy_(buckets_.gradients(), fresh) : at::_foreach_add_(buckets_.gradients(), fresh);
  for (size_t i = 0; i < parameters_.size(); ++i) clear(i);
  touched_ = false;  // sums are whole: a later pass may be made again
  std::ranges::fill(missing_, 0);
}

void GradientExchange::finish() {
  c10::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  touched_ = true;
  // All are there: by collect(), or by a captured graph that has it inside and was replayed.
  for (; processes_ && next_ < missing_.size(); ++next_) start(next_);
  for (auto& sum : under_way_) sum.wait();
  reset();
}

}  // namespace tightloop
