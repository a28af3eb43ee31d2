#include "train/naive_loop.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <vector>

#include "core/device.h"
#include "ops/config.h"
#include "ops/cross_entropy.h"
#include "train/language_task.h"
#include "train/precision.h"

namespace tightloop {

namespace {

using Clock = std::chrono::steady_clock;

class NaiveLoop {
 public:
  NaiveLoop(LanguageTask& task, const TrainConfig& config, Device& device)
      : model_(task.model()), config_(config), device_(device), place_(device.name()) {
    model_.parameters().to(place_, at::kFloat);
    for (const auto& value : model_.parameters().values()) {
      first_.push_back(at::zeros_like(value.detach()));
      second_.push_back(at::zeros_like(value.detach()));
    }
  }

  float step(const Batch& batch) {
    const std::vector<int64_t> shape{batch.rows, batch.length};
    const auto there = [&](void* data, at::ScalarType dtype) {
      return at::from_blob(data, shape, dtype).to(place_);
    };
    const auto inputs = there(batch.inputs, at::kInt).to(at::kLong);
    const auto mask = there(batch.loss_mask, at::kByte);
    const auto targets =
        at::where(mask != 0, there(batch.targets, at::kInt).to(at::kLong), at::Scalar(ops::kIgnoreIndex));
    for (const auto& value : model_.parameters().values())
      if (value.grad().defined()) value.mutable_grad().zero_();
    const auto hidden = model_.forward(inputs).hidden_BTD.flatten(0, 1);
    const auto loss =
        ops::cross_entropy_plain(at::linear(hidden, model_.head().weight_VD), targets.flatten());
    const auto mean = loss.objective / loss.count;
    mean.backward();
    const float value = mean.item<float>();
    update();
    device_.memory_stats();
    return value;
  }

 private:
  void update() {
    c10::NoGradGuard no_grad;
    const auto values = model_.parameters().values();
    double squares = 0;
    for (const auto& value : values)
      squares += std::pow(at::linalg_vector_norm(value.grad()).item<double>(), 2);
    const double norm = std::sqrt(squares), share = config_.clip > 0 ? std::min(1.0, config_.clip / norm) : 1;
    ++count_;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto gradient = values[i].grad() * share;
      first_[i].mul_(config_.beta1).add_(gradient, 1 - config_.beta1);
      second_[i].mul_(config_.beta2).addcmul_(gradient, gradient, 1 - config_.beta2);
      const auto m = first_[i] / (1 - std::pow(config_.beta1, count_));
      const auto v = second_[i] / (1 - std::pow(config_.beta2, count_));
      auto weight = values[i].detach();
      weight.mul_(1 - config_.lr * config_.weight_decay);
      weight.sub_(m / (at::sqrt(v) + config_.eps) * config_.lr);
    }
  }

  LanguageModel& model_;
  const TrainConfig& config_;
  Device& device_;
  const at::Device place_;
  std::vector<at::Tensor> first_, second_;
  int64_t count_ = 0;
};

}  // namespace

NaiveTimes naive_steps(const Recipe& given, int64_t steps) {
  constexpr int64_t kWarmUp = 2;
  Recipe recipe = given;
  recipe.data.num_workers = 1, recipe.data.prefetch_factor = 1, recipe.data.tokenize = "start";
  recipe.train.precision = "fp32";
  use_threads(recipe.train.threads);
  apply_precision(recipe.train);
  ops::use_plain(true);
  Device& device = training_device(recipe.train, -1);
  nlohmann::json metadata;
  const RunFolder scratch(std::filesystem::temp_directory_path() / "tightloop-naive");
  LanguageTask task(recipe, scratch, metadata);
  task.open(0, 0, 1);
  NaiveLoop loop(task, recipe.train, device);
  std::vector<double> times;
  for (int64_t step = 0; step < kWarmUp + steps; ++step) {
    const auto began = Clock::now();
    for (int64_t i = 0; i < recipe.train.accumulate; ++i) loop.step(task.next_batch());
    if (step >= kWarmUp)
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
  }
  ops::use_plain(false);
  std::ranges::sort(times);
  const double median = times[times.size() / 2];
  const auto tokens = static_cast<double>(task.positions() * recipe.train.accumulate);
  const auto parameters = static_cast<int64_t>(task.model().parameters().all().size());
  return {median, tokens / median * 1e3, steps * recipe.train.accumulate * (parameters + 1)};
}

}  // namespace tightloop
