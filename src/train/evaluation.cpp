// What a run does at an evaluation: all processes measure, the main one writes and decides, all do what it
// says.
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "core/counted.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "ops/fp8/fp8_linear.h"
#include "train/engine/step_engine.h"
#include "train/guard/step_guard.h"
#include "train/report/metric_table.h"
#include "train/trainer.h"

namespace tightloop {

namespace {

constexpr std::chrono::seconds kFlushWait{2};

/// 'tightloop eval' takes all of it, and may come to another loss.
std::string held_out_text(const Recipe& recipe, int64_t tokens) {
  const int64_t batches = recipe.train.eval_batches;
  const auto of = counted(tokens, "held-out token");
  if (recipe.model.translates())
    return fmt::format(" (all {}{})", of,
                       recipe.train.label_smoothing > 0 ? ", without label smoothing" : "");
  if (batches == 0) return fmt::format(" (all {})", of);
  return fmt::format(" ({}: at most train.eval_batches {} x {})", of, batches,
                     counted(recipe.train.micro_batch, "row"));
}

}  // namespace

Trainer::Next Trainer::evaluate(int64_t step, TrainResult& result) {
  engine_->syncs().count("evaluate");
  history_.wait();
  optimizer_->refresh_weights();
  const auto [values, tokens, stopped] = evaluator_->measure(step);
  const bool measured = values.has_value();
  const double loss = measured ? values->front().second : 0;
  auto next = Next::kGoOn;
  if (processes_.main()) {
    if (values) log_values(step, *values, held_out_text(recipe_, tokens));
    const bool could_stay = !recipe_.train.keep_best || history_.on_disk() == step;
    if (measured && std::isfinite(loss) && could_stay) history_.keep_evaluation(step, *values);
    if (!stopped && !interrupted()) sample(step);
    if (stopped || interrupted()) {
      next = Next::kInterrupted;
    } else if (measured && history_.patience_is_over()) {
      next = Next::kStopEarly;
    }
  }
  const at::Tensor decision = at::full({}, static_cast<int64_t>(next), at::kLong);
  processes_.broadcast(decision);
  next = static_cast<Next>(decision.item<int64_t>());
  if (measured) {
    result.held_out_loss = loss;
    guard_->divergence().evaluated(step, loss);
    if (history_.removal_is_due() && history_.saved() == step) history_.remove_old();
  }
  if (next == Next::kStopEarly && processes_.main()) log::info("Stopping: {}.", history_.best().text());
  return next;
}

void Trainer::log_values(int64_t step, const Task::Evaluation& values, const std::string& over) {
  nlohmann::json line{{"global_step", step}};
  std::string text;
  for (const auto& [name, value] : values) {
    line[name] = value;
    text += (text.empty() ? "" : ", ") + evaluation_text(name, value);
  }
  metrics_->line(line);
  metrics_->flush(
      kFlushWait);  // a kill must not find a checkpoint that counts as evaluated, and no such line
  log::info("step {}: {}{}", step, text, over);
}

void Trainer::measure_suite(int64_t step) {
  engine_->syncs().count("suite");
  history_.wait();
  optimizer_->refresh_weights();
  if (const auto values = processes_.main() ? evaluator_->measure_suite(step) : std::nullopt)
    log_values(step, *values);
  processes_.barrier();
}

void Trainer::sample(int64_t step) {
  if (!sampler_ || !samples_) return;
  const ops::WithoutFp8 as_exported;
  try {
    task_->refresh_weights();
    const auto samples = sampler_();
    if (samples.empty() || interrupted()) return;
    for (auto& line : samples_->add(step, samples)) metrics_->sample(std::move(line));
    log::info("step {}, a sample: {}", step, sample_text(samples.front()));
  } catch (const std::exception& error) {
    if (interrupted()) return;
    log::warn("step {}: there are no samples, training goes on: {}", step, first_line(error.what()));
    device_.empty_cache();
  }
}

}  // namespace tightloop
