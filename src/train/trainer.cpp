#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>

#include "core/counted.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "core/threads.h"
#include "core/version.h"
#include "model/model_size.h"
#include "ops/attention/attention_counter.h"
#include "train/engine/device_speed.h"
#include "train/engine/feed.h"
#include "train/engine/precision.h"
#include "train/engine/step_engine.h"
#include "train/engine/step_staging.h"
#include "train/guard/step_guard.h"
#include "train/report/sinks.h"
#include "train/report/step_watch.h"
#include "train/run/checkpoint.h"
#include "train/run/run_length.h"
#include "train/run/run_settings.h"
#include "train/run/run_share.h"
#include "train/run/same_start.h"
#include "train/run/saved_model.h"
#include "train/run/step_size.h"
#include "train/settings/auto_sizes.h"
#include "train/settings/memory_plan.h"

namespace tightloop {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Processes& alone() {
  static Processes one(std::nullopt);
  return one;
}

/// Once it has run.
void announce_attention() {
  const auto text = ops::attention_text();
  if (!text.empty()) log::info("Attention: {}.", text);
}

}  // namespace

Trainer::Trainer(const Recipe& recipe, const RunFolder& run, const TrainerOptions& options)
    : recipe_(recipe),
      chooses_lr_(recipe.train.lr < 0),
      run_(run),
      processes_(options.processes ? *options.processes : alone()),
      share_(options.share),
      device_(training_device(recipe.train, processes_.world() > 1 ? processes_.local_rank() : -1)),
      history_(run, recipe_, processes_, device_),
      use_(device_, recipe_, processes_.world()) {
  const Checkpoint* from = options.resume_from ? &*options.resume_from : nullptr;
  if (!from && processes_.main() && !checkpoint_steps(run_.checkpoints()).empty())
    throw usage_error(
        "the run '{}' has checkpoints already: a new run would write over them. Go on with one "
        "(TrainerOptions::resume_from), or choose another folder.",
        run_.root().string());
  require_best_by(recipe_);
  const int64_t row_tokens = recipe_.model.translates() ? 0 : recipe_.data.seq_len;
  if (row_tokens > 0) {
    const auto note = from ? fit_micro_batch(recipe_.train, row_tokens, processes_.world()) : std::string();
    if (!note.empty() && processes_.main()) log::info("{}", note);
    resolve_accumulate(recipe_.train, row_tokens, processes_.world());
  }
  recipe_.world = processes_.world();
  const auto& train = recipe_.train;
  use_threads(train.threads);
  recipe_.ops.apply();
  if (recipe_.lora.on() && train.precision == Precision::kFp8)
    throw usage_error("train.precision fp8 is not for adapters (lora.rank): take bf16.");
  apply_precision(train, device_);
  require_same_device(processes_, device_, compute_dtype(train.precision, device_));
  if (processes_.several() && recipe_.dist.backend == DistBackend::kNccl && !device_.is_cuda())
    throw usage_error(
        "dist.backend nccl carries tensors of GPUs, and this trains on the CPU (train.device {}): leave "
        "dist.backend at auto.",
        train.device);
  const bool one_gpu = processes_.several() && train.device.find(':') != train.device.npos;
  const bool by_host =
      recipe_.dist.backend == DistBackend::kGloo || (recipe_.dist.backend == DistBackend::kAuto && one_gpu);
  if (processes_.several() && processes_.any(by_host)) processes_.carry_gpu_through_host();
  device_.use_pools(train.pools);
  if (train.memory_limit > 0) device_.limit_memory(static_cast<int64_t>(train.memory_limit * (1 << 30)));
  if (from) done_ = from->step, consumed_ = samples_consumed(*from, run_, processes_);
  const auto hand_out = [&] { share_ ? share_->send_prepared() : processes_.barrier(); };
  if (!processes_.main()) hand_out();  // the main one makes the tokenizer and the index first
  task_ = make_task(recipe_, run_, history_.metadata(), from);
  if (from) history_.go_on_from(*from);
  const StepSize step_size{step_samples(), processes_.world()};
  if (const auto note = step_size_note(StepSize::of(history_.metadata()), step_size, row_tokens);
      !note.empty() && processes_.main())
    log::warn("{}", note);
  history_.metadata()["batch"] = step_size.to_json();
  if (chooses_lr_)
    recipe_.train.lr =
        choose_finetune_lr(static_cast<double>(model_size(task_->config()).total), recipe_.lora.on());
  plan_steps();
  if (processes_.main()) {
    history_.keep_origin(from);
    if (!from) write_settings(run_, recipe_);  // a run that resumes keeps its own until its first save
    hand_out();
  }

  require_same_data(processes_, run_, history_.metadata());
  const at::Device target(device_.name());
  const auto dtype = compute_dtype(train.precision, device_);
  if (processes_.main()) warn_of_slow_products(dtype, device_);
  if (processes_.main() && train.precision == Precision::kTf32 && !device_.is_cuda())
    log::warn("train.precision tf32 is for GPUs: on this CPU products are fp32.");
  // Files of the same name may differ between machines, and so may the last bits of random numbers.
  if (!from) share_weights();
  task_->trained().to(target, at::kFloat);
  optimizer_ = std::make_unique<Optimizer>(task_->trained(), train, task_->config(), dtype,
                                           OptimizerSharing{&processes_, recipe_.dist});
  if (from) optimizer_->load(from->weights, from->optimizer);
  if (!from && train.init_optimizer) {
    optimizer_->load_state(SavedModel(train.init_from).optimizer_state());
    log::info("The optimizer's moments are those of {}.", train.init_from);
  }
  task_->move_to(target, dtype);
  evaluator_ = std::make_unique<Evaluator>(*task_, device_, processes_);
  staging_ = std::make_unique<StepStaging>(*task_, recipe_, *optimizer_, processes_,
                                           recipe_.data.pin_memory && device_.is_cuda());
  const ModelConfig& model = task_->config();
  const int64_t experts = model.has_experts() ? model.experts : 0;
  buffer_ = std::make_unique<LossBuffer>(
      target, train.loss_extract_interval, static_cast<int64_t>(task_->sources().size()),
      experts * model.layers, static_cast<int64_t>(optimizer_->layers().count()));
  progress_ = make_progress();
  if (from) progress_->go_on_from(from->metadata.value("totals", nlohmann::json()));
  guard_ = std::make_unique<StepGuard>(train, model, recipe_.data.source == DataSource::kRandom, run_,
                                       history_, processes_, target);
  guard_->watch({train, *task_, *optimizer_, *staging_, target});
  if (from) guard_->reset(from->optimizer);
  engine_ = std::make_unique<StepEngine>(
      device_, *optimizer_, *buffer_,
      [this](const auto& parts, const auto& scale, bool metrics) {
        return task_->loss(parts, scale, metrics);
      },
      processes_,
      EngineOptions{
          .graphs = train.graph != AutoSwitch::kOff && train.pools,
          .time = train.time_parts,
          .global = train.loss_norm == LossNorm::kGlobal,
          .forbid_syncs = train.debug_syncs,
          .overlap = recipe_.dist.overlap,
          .waits_by_block = !model.translates() && &task_->trained() == &task_->language_model().parameters(),
          .spikes = guard_->device_spikes(),
          .make_room = [this] { return history_.wait_for_copy(); }});
}

Trainer::~Trainer() = default;

double Trainer::copy_seconds() const { return feed_ ? feed_->copy_seconds() : 0; }
const GraphCounts& Trainer::graphs() const { return engine_->graphs(); }
const Syncs& Trainer::syncs() const { return engine_->syncs(); }

std::unique_ptr<Progress> Trainer::make_progress() const {
  const ModelConfig& model = task_->config();
  return std::make_unique<Progress>(task_->sources(), model.has_experts() ? model.experts : 0,
                                    recipe_.train.steps, optimizer_->layers().names());
}

void Trainer::plan_steps() {
  auto& train = recipe_.train;
  if (train.epochs > 0)
    train.steps = steps_of_epochs(train.epochs, task_->epoch_samples(), step_samples(), done_,
                                  consumed_ - history_.metadata().value("passed_over", int64_t{0}));
  if (train.steps == 0) throw usage_error("how long to train is not said: set train.steps or train.epochs.");
  resolve_intervals(train);
}

void Trainer::announce() const {
  const auto& train = recipe_.train;
  const int64_t rows = train.micro_batch * train.accumulate * processes_.world();
  log::info("{} on {}, {}.", task_->description(), device_.description(),
            precision_name(train.precision, device_));
  const auto shared = fmt::format("{} accumulated x {} process{}", train.accumulate, processes_.world(),
                                  processes_.world() == 1 ? "" : "es");
  if (chooses_lr_) log::info("Learning rate {:.0e}, by the size of the model.", train.lr);
  const auto steps = counted(train.steps, "step");
  const auto length =
      train.epochs > 0 ? fmt::format("{} = {}", counted(train.epochs, "epoch"), steps) : steps;
  if (done_ == 0 && train.steps < kFewUpdates) {
    const int64_t row_tokens = task_->config().translates() ? 0 : recipe_.data.seq_len;
    const auto note = few_updates_note(train, task_->epoch_samples(), step_samples(), row_tokens);
    if (!note.empty()) log::warn("{}", note);
  }
  if (task_->config().translates())
    return log::info("Effective batch: up to {} target tokens x {}; {}.", task_->positions(), shared, length);
  log::info("Effective batch: {} x {} = {}, {} a step; {}.", counted(train.micro_batch, "row"), shared,
            counted(rows, "row"),
            counted(task_->positions() * train.accumulate * processes_.world(), "token"), length);
}

int64_t Trainer::step_samples() const {
  return recipe_.train.accumulate * processes_.world() * task_->samples();
}

void Trainer::open_feed(int64_t last) {
  const auto& train = recipe_.train;
  staging_->open(done_, consumed_, last);
  feed_ = std::make_unique<Feed>(
      at::Device(device_.name()), [this] { return staging_->next(); },
      FeedOptions{.copy_stream = train.copy_stream, .ahead = train.copy_ahead, .time = train.time_parts});
}

void Trainer::step(int64_t step) {
  const auto& train = recipe_.train;
  const auto began = Clock::now();
  const double waited = task_->waited();
  const QueueDepth queue = task_->depth();
  const Due now = due(recipe_.log, step - 1, step);
  engine_->count_flops(use_.counts_flops_at(step));
  double flops = 0, flops_tokens = 0;
  start_.step = step, start_.tokens = start_.empty_batches = 0;
  start_.lr = optimizer_->lr(rates_at(train, step, task_->config().width));
  for (int64_t i = 0; i < train.accumulate; ++i) {
    const Staged& staged = engine_->pass(*feed_, i == 0, i + 1 == train.accumulate, now.datasets, now.detail);
    start_.tokens += staged.tokens * processes_.world();
    start_.epoch = staged.epoch;
    start_.empty_batches += staged.supervised == 0;
    if (engine_->flops() == 0) continue;
    flops += engine_->flops();
    flops_tokens += static_cast<double>(staged.tokens);
  }
  if (flops_tokens > 0) use_.set_counted_flops(flops / flops_tokens);
  if (use_.flops() == 0) use_.set_flops(processes_.broadcast_value(task_->flops_per_token()));
  buffer_->finish(step);
  start_.waited = task_->waited() - waited;
  start_.queue = {task_->depth().ready - queue.ready, task_->depth().taken - queue.taken};
  start_.by_layer = now.detail;
  start_.seconds = seconds_since(began);
  host_seconds_ += start_.seconds - start_.waited;
  progress_->started(start_);
  done_ = step;
  consumed_ += step_samples();
}

void Trainer::extract(bool all) {
  buffer_->extract(engine_->syncs(), &processes_);
  // What comes of a step may take all processes: a rollback, a skipped update that is looked into.
  const bool exactly = processes_.several() && device_.is_cuda();
  for (const StepSums& sums : buffer_->arrived(all ? 0 : 1, exactly)) handle(sums);
}

void Trainer::handle(const StepSums& sums) {
  if (taken_) taken_->push_back(sums);
  guard_->step(sums, done_);
  // A loss that was computed with the weights of the newest checkpoint has been judged: older ones may go.
  if (history_.removal_is_due() && sums.step > history_.saved() && guard_->healthy()) history_.remove_old();
  const int64_t steps = progress_->line_steps() + 1;
  auto report = progress_->arrived(sums);
  if (!report) return;
  if (progress_->tokens() == 0) {
    throw data_error(
        "none of the tokens of the first {} is to be learned: the loss mask is all zero. See "
        "data.loss_after and the chat template, or 'tightloop data show'.",
        counted(sums.step, "step"));
  }
  if (report->supervised == 0)
    return log::warn("Nothing was to be learned in the steps up to {}.", sums.step);
  const auto& train = recipe_.train;
  report->set("syncs", engine_->syncs().total());
  report->set("training/lr/<group>",
              optimizer_->group_lrs(rates_at(train, sums.step, task_->config().width)));
  report->due = due(recipe_.log, sums.step - steps, sums.step, sums.step == train.steps);
  use_.tell(*report);
  if (metrics_) metrics_->interval(*report);
}

bool Trainer::evaluates_at(int64_t step) const {
  const auto& train = recipe_.train;
  return step == train.steps || (train.eval_steps > 0 && step % train.eval_steps == 0);
}

bool Trainer::saves_at(int64_t step) const {
  const auto& train = recipe_.train;
  return (train.save_steps > 0 && step % train.save_steps == 0) ||
         (evaluates_at(step) && train.keep_best && evaluator_->possible()) || measures_suite_at(step);
}

bool Trainer::measures_suite_at(int64_t step) const {
  const auto& eval = recipe_.eval;
  return !eval.suite.empty() &&
         (step == recipe_.train.steps || (eval.suite_steps > 0 && step % eval.suite_steps == 0));
}

TrainResult Trainer::run() {
  try {
    const TrainResult result = train();
    const char* why = result.interrupted ? " by a signal" : result.stopped_early ? " by train.patience" : "";
    const bool finished = result.step == recipe_.train.steps;
    history_.note(done_, finished ? RunEvent::kFinished : RunEvent::kStopped,
                  fmt::format("{} after step {}{}", finished ? "finished" : "stopped", done_, why),
                  {{"seconds", result.seconds}});
    return result;
  } catch (const std::exception& error) {
    const Error last = processes_.fail(error);  // the others need not wait for the save
    history_.wait();                            // what a save has to say comes before the last word
    const auto event = last.code() == ExitCode::kInterrupted ? RunEvent::kStopped : RunEvent::kFailed;
    history_.note(done_, event, last.what());
    throw;
  }
}

bool Trainer::owes_evaluation() const {
  return done_ > 0 && evaluates_at(done_) && history_.evaluated() != done_;
}

void Trainer::note_start() {
  const auto event = done_ > 0 ? RunEvent::kResumed : RunEvent::kStarted;
  const auto text = done_ > 0 ? fmt::format("resumed after step {}", done_) : std::string("started");
  nlohmann::json more{{"steps", recipe_.train.steps},
                      {"model", task_->description()},
                      {"machine",
                       {{"device", device_.description()},
                        {"versions", device_.versions()},
                        {"precision", precision_name(recipe_.train.precision, device_)},
                        {"processes", processes_.world()},
                        {"cores", available_cores()},
                        {"peak_flops", use_.peak().flops},
                        {"peak_by", name_of(use_.peak().source)},
                        {"tightloop", kVersion}}}};
  if (!history_.compares_anew().empty()) {  // of the main process
    log::warn("{}", history_.compares_anew());
    more["best_after"] = owes_evaluation() ? done_ - 1 : done_;
  }
  history_.note(done_, event, text, more);
}

TrainResult Trainer::train() {
  const auto& train = recipe_.train;
  const int64_t last = train.stop_at > 0 ? std::min(train.stop_at, train.steps) : train.steps;
  if (processes_.main()) use_.begin();
  open_feed(last);
  if (processes_.main()) {
    if (done_ > 0) log::info("Resuming after step {}.", done_);
    announce();
    evaluator_->check();
    metrics_ = std::make_unique<Metrics>(recipe_.log, sinks_of(run_, recipe_, done_));
    samples_ = std::make_unique<SampleLog>(run_.samples(), done_);
  }
  evaluator_->set_possible(processes_.any(evaluator_->possible()));
  note_start();
  TrainResult result;
  history_.begin();
  const auto started = Clock::now();
  engine_->restart_clock();

  StepWatch watch(train.steps, device_.is_cuda(), processes_.world() > 1, processes_.main());
  Next next = Next::kGoOn;
  if (owes_evaluation()) next = evaluate(done_, result);
  const int64_t first = done_ + 1;
  for (int64_t step = first; step <= last && next == Next::kGoOn; ++step) {
    const double epoch = start_.epoch;
    if (saves_at(step) && history_.wait_before_next()) engine_->restart_clock();
    watch.begin(step);
    if (step == first) ops::forget_attention_used();  // evaluations may take other kernels
    this->step(step);
    if (step == first && processes_.main()) announce_attention();
    const Asked asked = asked_at(step);
    if (asked.stop) next = Next::kInterrupted;
    const bool evaluating = evaluates_at(step) && next == Next::kGoOn;
    const bool ending = step == last || next != Next::kGoOn;
    const bool saving_anyway = ending || saves_at(step);
    const bool saving = saving_anyway || asked.save || history_.save_is_due(step);
    if (step % train.logging_steps == 0 || ending) progress_->end_line();
    if (step % train.loss_extract_interval == 0 || buffer_->full() || saving || evaluating ||
        std::floor(start_.epoch) > std::floor(epoch))
      extract(/*all=*/train.loss_extract_interval == 1 || train.on_spike == OnSpike::kRollback || saving ||
              evaluating);
    if (metrics_ && terminal::is_live()) metrics_->interval(progress_->running());
    use_.look(step);
    watch.end(progress_->any_line());
    if (const int64_t spike = guard_->wants_rollback(); spike > 0 && roll_back(spike, last)) {
      step = done_;
      continue;
    }
    if (step == train.steps) guard_->divergence().finish();
    if (saving) save(step, ending, /*passing=*/train.save_steps > 0 && !saving_anyway);
    if (evaluating) next = evaluate(step, result);
    const bool measuring = measures_suite_at(step) && next == Next::kGoOn;
    if (measuring) measure_suite(step);
    // Also where it was saved in vain.
    if (next != Next::kGoOn && processes_.any(processes_.main() && history_.on_disk() != step))
      save(step, /*last=*/true);
    if (saving || evaluating || measuring) engine_->restart_clock();
  }
  extract(/*all=*/true);
  if (history_.removal_is_due() && guard_->healthy()) history_.remove_old();
  history_.finish();
  feed_.reset();
  optimizer_->refresh_weights();
  task_->refresh_weights();
  result.step = done_;
  result.stopped_early = next == Next::kStopEarly;
  result.interrupted = next == Next::kInterrupted;
  result.mean_loss = progress_->mean_loss();
  result.seconds = seconds_since(started);
  if (metrics_) result.losses = metrics_->finish();
  return result;
}

void Trainer::save(int64_t step, bool last, bool passing) {
  engine_->syncs().count("save");
  if (metrics_) metrics_->flush();
  // All losses were read, so the device is done with the step. A peer that died in it may have left the sums
  // of gradients half done: those weights are not saved.
  processes_.check();
  guard_->divergence().before_save();
  if (optimizer_->sharded() && (!share_ || share_->all_may_write()) && save_together(step, last, passing))
    return;
  // What is sharded takes all processes to be whole again.
  const bool sharded = optimizer_->sharded();
  NamedTensors weights, moments;
  if (sharded) {
    history_.wait();  // one copy at a time
    weights = optimizer_->weights(), moments = optimizer_->state();
  }
  const auto state = [&] {
    RunSnapshot now = snapshot();
    now.weights = sharded ? std::move(weights) : optimizer_->weights();
    now.optimizer = sharded ? std::move(moments) : optimizer_->state();
    now.fresh = sharded, now.frozen = task_->frozen();
    for (const auto& [name, tensor] : guard_->state())
      now.optimizer.emplace_back(name, sharded ? tensor.clone() : tensor);
    return now;
  };
  history_.save(step, state, last, passing);
}

void Trainer::take_steps(int64_t steps, std::vector<StepSums>& sums) {
  constexpr int64_t kEndless = int64_t{1} << 40;
  const auto& train = recipe_.train;
  if (!feed_) {
    open_feed(kEndless);
    std::vector<std::unique_ptr<Sink>> sinks;
    sinks.push_back(std::make_unique<JsonLinesSink>(run_.metrics(), 0));
    metrics_ = std::make_unique<Metrics>(recipe_.log, std::move(sinks));
  }
  taken_ = &sums;
  engine_->restart_clock();
  for (int64_t i = 0; i < steps; ++i) {
    throw_if_interrupted();
    step(done_ + 1);
    if (done_ % train.logging_steps == 0) progress_->end_line();
    if (buffer_->full()) extract(/*all=*/train.loss_extract_interval == 1);
    use_.look(done_);
  }
  extract(/*all=*/true);
  taken_ = nullptr;
}

}  // namespace tightloop
