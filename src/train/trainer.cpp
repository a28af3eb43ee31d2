#include "train/trainer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/cpu.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal.h"
#include "core/threads.h"
#include "train/checkpoint.h"
#include "train/loading.h"
#include "train/loss.h"
#include "train/metrics.h"
#include "train/run_tokenizer.h"

namespace tightloop {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

at::ScalarType compute_dtype(const std::string& precision, const Device& device) {
  if (precision == "bf16") return at::kBFloat16;
  if (precision == "fp32") return at::kFloat;
  return device.is_cuda() || cpu_has("amx_bf16") ? at::kBFloat16 : at::kFloat;
}

void use_threads(int64_t threads) {
  at::set_num_threads(threads > 0 ? static_cast<int>(threads) : available_cores());
}

/// Sums that stay on the device until somebody looks.
struct Trainer::Interval {
  at::Tensor loss, grad_norm;
  int64_t tokens = 0, supervised = 0, steps = 0;
  double waited_before = 0;
  Clock::time_point start = Clock::now();

  explicit Interval(at::Device device, double waited)
      : loss(at::zeros({}, at::TensorOptions(at::kDouble).device(device))), waited_before(waited) {}
};

Trainer::Trainer(const Recipe& recipe, const RunFolder& run)
    : recipe_(recipe), run_(run), device_(device(recipe.train.device)) {
  use_threads(recipe_.train.threads);
  recipe_.ops.apply();
  tokenizer_ = prepare_tokenizer(recipe_, run_);
  dataset_ = load_dataset(recipe_.data, recipe_.tasks, *tokenizer_, recipe_.chat, nullptr, run_.index());
  if (dataset_.bad.total() > 0) log::warn("{}", dataset_.bad.report());
  recipe_.model.resolve(tokenizer_->vocab_size(), recipe_.data.seq_len);
  model_ = make_model(recipe_.model, recipe_.train.seed);
  model_->parameters().to(at::Device(device_.name()), at::kFloat);
  optimizer_ = std::make_unique<AdamW>(model_->parameters(), recipe_.train,
                                       compute_dtype(recipe_.train.precision, device_));
  write_file_whole(run_.config(), recipe_.bind().to_yaml());
}

void Trainer::resume() {
  const auto checkpoint = load_checkpoint(run_.checkpoints());
  optimizer_->load(checkpoint.weights, checkpoint.optimizer);
  done_ = checkpoint.step;
  log::info("Resuming after step {}.", done_);
}

void Trainer::announce(int64_t row_length) const {
  const auto& train = recipe_.train;
  const int64_t rows = train.micro_batch * train.accumulate, processes = 1;
  log::info("{} parameters on {}, {}; vocabulary {}; {} training tokens, {} held out.",
            human_count(static_cast<double>(model_->parameters().count())), device_.description(),
            compute_dtype(train.precision, device_) == at::kFloat ? "fp32" : "bf16", tokenizer_->vocab_size(),
            human_count(static_cast<double>(dataset_.train->tokens())),
            human_count(static_cast<double>(dataset_.val->tokens())));
  log::info("Effective batch: {} rows x {} accumulated x {} process = {} rows, {} tokens a step; {} steps.",
            train.micro_batch, train.accumulate, processes, rows * processes, rows * processes * row_length,
            train.steps);
}

void Trainer::step(int64_t step, Loader& loader, Interval& interval) {
  int64_t supervised = 0;
  for (int64_t micro = 0; micro < recipe_.train.accumulate; ++micro) {
    const Batch& batch = loader.next();
    supervised += batch.supervised;
    interval.tokens += batch.rows * batch.length;
    const auto loss = loss_of(*model_, to_device(batch, model_->device(), recipe_.data.pin_memory));
    loss.sum.backward();
    optimizer_->accumulate();
    interval.loss.add_(loss.sum.detach());
  }
  interval.grad_norm = optimizer_->step(learning_rate(recipe_.train, step), supervised);
  interval.supervised += supervised;
  ++interval.steps;
}

LoaderOptions Trainer::loading() const {
  LoaderOptions options = loading_of(recipe_, *tokenizer_);
  options.first_batch = done_ * recipe_.train.accumulate;
  return options;
}

TrainResult Trainer::run() {
  const auto& train = recipe_.train;
  catch_interrupts();
  Loader loader(dataset_.train, loading());
  announce(loader.row_length());
  Metrics metrics(run_.metrics(), done_);
  TrainResult result;
  const auto started = Clock::now();
  const int64_t last = train.stop_at > 0 ? std::min(train.stop_at, train.steps) : train.steps;
  Interval interval(model_->device(), loader.wait_seconds());

  const auto extract = [&](int64_t step) {
    const double loss =
        interval.loss.item<double>() / static_cast<double>(std::max<int64_t>(1, interval.supervised));
    if (!std::isfinite(loss)) {
      throw Error(
          ExitCode::kFailure,
          fmt::format(
              "the loss became {} between step {} and step {}. A learning rate that is too high is the "
              "usual cause: try --train.lr {:g}, or a longer --train.warmup_steps.",
              loss, step - interval.steps + 1, step, train.lr / 3));
    }
    const double elapsed = seconds_since(interval.start);
    metrics.interval(
        {.step = step,
         .total_steps = train.steps,
         .loss = loss,
         .lr = learning_rate(train, step),
         .grad_norm = interval.grad_norm.item<double>(),
         .step_seconds = elapsed / static_cast<double>(interval.steps),
         .tokens_per_second = static_cast<double>(interval.tokens) / elapsed,
         .data_wait_share = std::max(0.0, loader.wait_seconds() - interval.waited_before) / elapsed});
    interval = Interval(model_->device(), loader.wait_seconds());
  };

  for (int64_t step = done_ + 1; step <= last; ++step) {
    this->step(step, loader, interval);
    done_ = step;
    const bool stopping = step == last || interrupted();
    if (step % train.logging_steps == 0 || stopping) extract(step);
    const auto pause = Clock::now();  // saving and evaluating are not the step's time
    if (stopping || (train.save_steps > 0 && step % train.save_steps == 0)) save(step);
    const bool evaluating = train.eval_steps > 0 && step % train.eval_steps == 0;
    if (dataset_.val->size() > 0 && (evaluating || step == train.steps)) {
      result.held_out_loss = evaluate();
      metrics.line({{"global_step", step}, {"eval/loss", *result.held_out_loss}});
      log::info("step {}: held-out loss {:.4f}", step, *result.held_out_loss);
    }
    if (stopping) break;
    interval.start += Clock::now() - pause;
  }
  result.step = done_;
  result.interrupted = done_ < last;
  result.losses = metrics.finish();
  result.seconds = seconds_since(started);
  return result;
}

StepTimes Trainer::time_steps(int64_t steps) {
  constexpr int64_t kWarmUp = 3;
  Loader loader(dataset_.train, loading());
  Interval interval(model_->device(), 0);
  for (int64_t i = 1; i <= kWarmUp; ++i) step(i, loader, interval);
  device_.synchronize();
  StepTimes times;
  interval = Interval(model_->device(), loader.wait_seconds());
  for (int64_t i = 1; i <= steps; ++i) {
    const auto start = Clock::now();
    step(kWarmUp + i, loader, interval);
    device_.synchronize();
    times.milliseconds.push_back(seconds_since(start) * 1e3);
  }
  const double elapsed = seconds_since(interval.start);
  times.tokens_per_second = static_cast<double>(interval.tokens) / elapsed;
  times.data_wait_share = std::max(0.0, loader.wait_seconds() - interval.waited_before) / elapsed;
  return times;
}

double Trainer::evaluate() {
  LoaderOptions options = loading();
  options.first_batch = 0;
  options.shuffle = false;
  Loader loader(dataset_.val, options);
  return held_out_loss(*model_, loader, recipe_.train.eval_batches).mean();
}

void Trainer::save(int64_t step) {
  save_checkpoint(run_.checkpoints(), step, optimizer_->weights(), optimizer_->state(),
                  recipe_.train.keep_checkpoints);
}

}  // namespace tightloop
