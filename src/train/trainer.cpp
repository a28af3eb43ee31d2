#include "train/trainer.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
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
#include "core/random.h"
#include "core/terminal.h"
#include "core/threads.h"
#include "train/checkpoint.h"
#include "train/loading.h"
#include "train/loss.h"
#include "train/metrics.h"
#include "train/run_tokenizer.h"
#include "train/saved_model.h"

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

Trainer::Trainer(const Recipe& recipe, const RunFolder& run)
    : recipe_(recipe), run_(run), device_(device(recipe.train.device)) {
  use_threads(recipe_.train.threads);
  recipe_.ops.apply();
  tokenizer_ = prepare_tokenizer(recipe_, run_);
  dataset_ = load_dataset(recipe_.data, recipe_.tasks, *tokenizer_, recipe_.chat, nullptr, run_.index());
  if (dataset_.bad.total() > 0) log::warn("{}", dataset_.bad.report());
  recipe_.model.resolve(tokenizer_->vocab_size(), recipe_.data.seq_len);
  model_ = make_model(recipe_.model, recipe_.train.seed);
  load_start();
  if (recipe_.lora.on())
    adapters_ = std::make_unique<Adapters>(model_->parameters(), recipe_.lora, recipe_.train.seed);
  Parameters& trained = adapters_ ? adapters_->parameters() : model_->parameters();
  const at::Device place(device_.name());
  const auto dtype = compute_dtype(recipe_.train.precision, device_);
  trained.to(place, at::kFloat);
  optimizer_ = std::make_unique<Optimizer>(trained, recipe_.train, model_->config(), dtype);
  if (adapters_) model_->parameters().to(place, dtype);
  write_file_whole(run_.config(), recipe_.bind().to_yaml());
}

void Trainer::load_start() {
  const auto& train = recipe_.train;
  if (!train.stage.empty()) metadata_["stage"] = train.stage;
  metadata_["gradient_checkpointing"] = model_->config().gradient_checkpointing;
  if (recipe_.lora.on()) metadata_["lora"] = {{"rank", recipe_.lora.rank}, {"alpha", recipe_.lora.alpha}};
  if (!checkpoint_steps(run_.checkpoints()).empty()) {
    // A run that resumes needs its parent no more: what its adapters stand on is in its own checkpoints.
    if (!recipe_.lora.on()) return;
    auto own = load_checkpoint(run_.checkpoints(), {}, /*weights_only=*/true);
    drop_adapters(own.weights);
    load_weights(model_->parameters(), own.weights, "model.safetensors");
  } else if (!train.init_from.empty()) {
    const SavedModel parent(train.init_from);
    parent.load_weights(*model_);
    metadata_["parent"] = {{"path", train.init_from}, {"step", parent.step()}};
    if (parent.metadata().contains("stage")) metadata_["parent"]["stage"] = parent.metadata()["stage"];
    if (parent.metadata().contains("dtype")) metadata_["dtype"] = parent.metadata()["dtype"];
    log::info("Starting from {}{}.", train.init_from,
              parent.step() > 0 ? fmt::format(" after its step {}", parent.step()) : "");
  }
}

void Trainer::resume() {
  const auto checkpoint = load_checkpoint(run_.checkpoints());
  optimizer_->load(checkpoint.weights, checkpoint.optimizer);
  done_ = checkpoint.step;
  metadata_.update(checkpoint.metadata);
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
  const int64_t positions = train.micro_batch * row_length;
  const bool wanted = train.fused_head == "on" || train.fused_head == "true";
  if (chunks_head(*model_, positions, train.fused_head)) {
    log::info("The head makes logits by chunks of rows.");
  } else if (wanted) {
    log::warn("train.fused_head is on, but ops.plain is too: the plain twin holds all logits at once.");
  }
}

Interval Trainer::interval(const Loader& loader) const {
  return {model_->device(), dataset_.sources, loader.wait_seconds()};
}

MicroBatch Trainer::take(Loader& loader, Interval& interval) {
  const Batch& batch = loader.next();
  check_ids(batch, model_->config().vocab_size, dataset_.sources);
  if (batch.supervised == 0 && empty_batches_++ == 0) {
    log::warn(
        "Micro-batch {} holds no token to learn (its loss mask is all zero), so it is passed over. More of "
        "them are only counted, as training/empty_batches in metrics.jsonl.",
        batch.index);
  }
  interval.add(batch);
  supervised_ += batch.supervised;
  MicroBatch micro{to_device(batch, model_->device(), recipe_.data.pin_memory), batch.supervised};
  const auto words = philox(static_cast<uint64_t>(recipe_.train.seed), static_cast<uint64_t>(batch.index));
  micro.batch.random = at::full({}, static_cast<int64_t>(words[0] | uint64_t{words[1]} << 32),
                                micro.batch.inputs_BT.options());
  return micro;
}

void Trainer::step(int64_t step, Loader& loader, Interval& interval) {
  const auto& train = recipe_.train;
  if (adapters_) adapters_->refresh();
  const double divisor = accumulate_step(
      *model_, *optimizer_, train, [&] { return take(loader, interval); },
      [&](const MicroBatch& micro, const BatchLoss& loss) {
        interval.add(micro.batch, loss);
        if (!first_loss_.defined()) first_loss_ = loss.sum.detach() / static_cast<double>(micro.supervised);
        if (adapters_) adapters_->refresh();  // the backward pass has used up the graph behind the sums
      });
  if (divisor > 0)
    interval.grad_norm = optimizer_->step(rates_at(train, step, model_->config().width), divisor);
  interval.end_step();
}

void Trainer::refuse_divergence(int64_t step, const Interval& interval, double loss) const {
  const auto& train = recipe_.train;
  const double first = first_loss_.item<double>(), start = std::min(first, least_loss_);
  const double guessing = std::log(static_cast<double>(model_->config().vocab_size));
  const auto failure = [](std::string message) { return Error(ExitCode::kFailure, std::move(message)); };
  if (!std::isfinite(first)) {
    throw failure(fmt::format(
        "the loss was {} before the first update. The weights that the run started from hold values "
        "that are not finite, or so large that sums overflow.",
        first));
  }
  if (std::isfinite(loss) && (loss < 2 * guessing || loss < 2 * start)) return;
  const bool muon = train.optimizer == "muon";
  throw failure(fmt::format(
      "the loss rose from {:.4g} to {:.4g} between step {} and step {} (guessing costs {:.4g}). A learning "
      "rate "
      "that is too high is the usual cause: try --train.{} {:g}, or a longer --train.warmup_steps.",
      start, std::fabs(loss), step - interval.steps() + 1, step, guessing, muon ? "lr_scale" : "lr",
      (muon ? train.lr_scale : train.lr) / 3));
}

void Trainer::report(int64_t step, const Interval& interval, double waited, Metrics& metrics) {
  if (supervised_ == 0) {
    throw data_error(
        "none of the {} tokens of the first {} steps is to be learned: the loss mask is all zero. See "
        "data.loss_after and the chat template, or 'tightloop data show'.",
        interval.tokens(), interval.steps());
  }
  if (interval.supervised() == 0) return log::warn("Nothing was to be learned in the steps up to {}.", step);
  const Rates rates = rates_at(recipe_.train, step, model_->config().width);
  IntervalReport report{.step = step,
                        .total_steps = recipe_.train.steps,
                        .lr = optimizer_->lr(rates),
                        .empty_batches = empty_batches_};
  interval.report(report, waited);
  refuse_divergence(step, interval, report.loss);
  least_loss_ = std::min(least_loss_, report.loss);
  metrics.interval(report);
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
  Interval interval = this->interval(loader);

  for (int64_t step = done_ + 1; step <= last; ++step) {
    this->step(step, loader, interval);
    done_ = step;
    const bool stopping = step == last || interrupted();
    if (step % train.logging_steps == 0 || stopping) {
      report(step, interval, loader.wait_seconds(), metrics);
      interval = this->interval(loader);
    }
    const auto pause = Clock::now();
    if (stopping || (train.save_steps > 0 && step % train.save_steps == 0)) save(step);
    const bool evaluating = train.eval_steps > 0 && step % train.eval_steps == 0;
    if (dataset_.val->size() > 0 && (evaluating || step == train.steps)) {
      result.held_out_loss = evaluate();
      metrics.line({{"global_step", step}, {"eval/loss", *result.held_out_loss}});
      log::info("step {}: held-out loss {:.4f}", step, *result.held_out_loss);
    }
    if (stopping) break;
    interval.leave_out(Clock::now() - pause);
  }
  refresh_adapters();
  result.step = done_;
  result.interrupted = done_ < last;
  result.losses = metrics.finish();
  result.seconds = seconds_since(started);
  return result;
}

StepTimes Trainer::time_steps(int64_t steps) {
  constexpr int64_t kWarmUp = 3;
  Loader loader(dataset_.train, loading());
  Interval interval = this->interval(loader);
  for (int64_t i = 1; i <= kWarmUp; ++i) step(i, loader, interval);
  device_.synchronize();
  StepTimes times;
  interval = this->interval(loader);
  for (int64_t i = 1; i <= steps; ++i) {
    const auto start = Clock::now();
    step(kWarmUp + i, loader, interval);
    device_.synchronize();
    times.milliseconds.push_back(seconds_since(start) * 1e3);
  }
  times.tokens_per_second = static_cast<double>(interval.tokens()) / interval.seconds();
  times.data_wait_share = interval.wait_share(loader.wait_seconds());
  return times;
}

void Trainer::refresh_adapters() {
  c10::NoGradGuard no_grad;
  if (adapters_) adapters_->refresh();
}

double Trainer::evaluate() {
  refresh_adapters();
  LoaderOptions options = loading();
  options.first_batch = 0;
  options.shuffle = false;
  Loader loader(dataset_.val, options);
  return held_out_loss(*model_, loader, recipe_.train.eval_batches).mean();
}

void Trainer::save(int64_t step) {
  auto weights = optimizer_->weights();
  if (adapters_) weights.insert(weights.end(), adapters_->frozen().begin(), adapters_->frozen().end());
  save_checkpoint(run_.checkpoints(), step, weights, optimizer_->state(), recipe_.train.keep_checkpoints,
                  metadata_);
}

}  // namespace tightloop
