#include "bench/naive_loop.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/device.h"
#include "ops/config.h"
#include "train/engine/precision.h"
#include "train/engine/task.h"

namespace tightloop {

namespace {

using Clock = std::chrono::steady_clock;

class NaiveLoop {
 public:
  NaiveLoop(Task& task, const TrainConfig& config, Device& device)
      : task_(task), config_(config), device_(device), place_(device.name()) {
    task.trained().to(place_, at::kFloat);
    values_ = task.trained().values();
    for (const auto& value : values_) {
      first_.push_back(at::zeros_like(value.detach()));
      second_.push_back(at::zeros_like(value.detach()));
    }
  }

  float step() {
    const Staged staged = task_.next(/*pin=*/false);
    for (const auto& value : values_)
      if (value.grad().defined()) value.mutable_grad().zero_();
    const auto parts = staged.layout.parts(staged.buffer.to(place_));
    const auto mean = task_.loss(parts, {}, /*metrics=*/false).objective /
                      static_cast<double>(std::max<int64_t>(1, staged.supervised));
    mean.backward();
    const float value = mean.item<float>();
    update();
    device_.memory_stats();
    return value;
  }

 private:
  void update() {
    c10::NoGradGuard no_grad;
    double squares = 0;
    for (const auto& value : values_)
      squares += std::pow(at::linalg_vector_norm(value.grad()).item<double>(), 2);
    const double norm = std::sqrt(squares), share = config_.clip > 0 ? std::min(1.0, config_.clip / norm) : 1;
    ++count_;
    for (size_t i = 0; i < values_.size(); ++i) {
      const auto gradient = values_[i].grad() * share;
      first_[i].mul_(config_.beta1).add_(gradient, 1 - config_.beta1);
      second_[i].mul_(config_.beta2).addcmul_(gradient, gradient, 1 - config_.beta2);
      const auto m = first_[i] / (1 - std::pow(config_.beta1, count_));
      const auto v = second_[i] / (1 - std::pow(config_.beta2, count_));
      auto weight = values_[i].detach();
      weight.mul_(1 - config_.lr * config_.weight_decay);
      weight.sub_(m / (at::sqrt(v) + config_.eps) * config_.lr);
    }
  }

  Task& task_;
  const TrainConfig& config_;
  Device& device_;
  const at::Device place_;
  std::vector<at::Tensor> values_, first_, second_;
  int64_t count_ = 0;
};

}  // namespace

NaiveTimes naive_steps(const Recipe& given, const std::filesystem::path& folder, int64_t steps) {
  constexpr int64_t kWarmUp = 2;
  Recipe recipe = given;
  recipe.data.num_workers = 1, recipe.data.prefetch_factor = 1, recipe.data.tokenize = TokenizeWhen::kStart;
  recipe.train.precision = Precision::kFp32, recipe.train.fused_head = AutoSwitch::kOff;
  use_threads(recipe.train.threads);
  Device& device = training_device(recipe.train, -1);
  apply_precision(recipe.train, device);
  nlohmann::json metadata;
  const auto task = make_task(recipe, RunFolder::create(folder, false), metadata);
  task->open(0, 0, 0, 1);
  NaiveLoop loop(*task, recipe.train, device);
  ops::use_plain(true);
  std::vector<double> times;
  for (int64_t step = 0; step < kWarmUp + steps; ++step) {
    const auto began = Clock::now();
    for (int64_t i = 0; i < recipe.train.accumulate; ++i) loop.step();
    if (step >= kWarmUp)
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
  }
  ops::use_plain(false);
  std::ranges::sort(times);
  const double median = times[times.size() / 2];
  const auto tokens = static_cast<double>(task->positions() * recipe.train.accumulate);
  const auto parameters = static_cast<int64_t>(task->trained().all().size());
  return {median, tokens / median * 1e3, steps * recipe.train.accumulate * (parameters + 1)};
}

}  // namespace tightloop
