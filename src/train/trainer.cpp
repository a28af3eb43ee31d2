#include "train/trainer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/random.h"
#include "core/terminal.h"
#include "model/model_size.h"
#include "train/engine/device_speed.h"
#include "train/engine/precision.h"
#include "train/engine/step_numbers.h"
#include "train/report/metric_table.h"
#include "train/report/sinks.h"
#include "train/report/step_watch.h"
#include "train/run/checkpoint.h"
#include "train/run/run_length.h"
#include "train/run/run_settings.h"
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

/// The weight of a token in what is differentiated. fp16 would overflow on sums over many tokens, so there
/// it is about the mean over a micro-batch; a power of two, which changes no rounding.
double unit_of(const Optimizer& optimizer, int64_t positions) {
  return optimizer.scaler() ? std::exp2(-std::round(std::log2(static_cast<double>(positions)))) : 1.0;
}

double gib(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

/// What the steps of a checkpoint that does not say so had consumed, by the settings that the run had: its
/// config.yaml is still theirs.
int64_t consumed_before(int64_t steps, const RunFolder& run, const Task& task, Processes& processes) {
  Recipe before;
  if (processes.main()) before.bind().load(run.config());
  const int64_t rows = task.config().translates() ? 1 : before.train.micro_batch;
  const at::Tensor count =
      at::full({}, steps * before.train.accumulate * rows * processes.world(), at::kLong);
  processes.broadcast(count);
  return count.item<int64_t>();
}

}  // namespace

Trainer::Trainer(const Recipe& recipe, const RunFolder& run, const TrainerOptions& options)
    : recipe_(recipe),
      chooses_lr_(recipe.train.lr < 0),
      run_(run),
      processes_(options.processes ? *options.processes : alone()),
      device_(training_device(recipe.train, processes_.world() > 1 ? processes_.local_rank() : -1)) {
  const Checkpoint* from = options.resume_from ? &*options.resume_from : nullptr;
  const auto& train = recipe_.train;
  use_threads(train.threads);
  recipe_.ops.apply();
  apply_precision(train);
  device_.use_pools(train.pools);
  if (train.memory_limit > 0) device_.limit_memory(static_cast<int64_t>(train.memory_limit * (1 << 30)));
  if (!processes_.main()) processes_.barrier();  // the main one makes the tokenizer and the index first
  task_ = make_task(recipe_, run_, metadata_, from);
  if (processes_.main()) processes_.barrier();
  if (from) go_on_from(*from);
  if (chooses_lr_)
    recipe_.train.lr =
        choose_finetune_lr(static_cast<double>(model_size(task_->config()).total), recipe_.lora.on());
  plan_steps();
  if (processes_.main()) {
    origin_ = origin_of(recipe_, run_);
    if (!from) write_settings(run_, recipe_);  // a run that resumes keeps its own until its first save
  }

  const at::Device place(device_.name());
  const auto dtype = compute_dtype(train.precision, device_);
  if (processes_.main()) warn_of_slow_products(dtype, device_);
  task_->trained().to(place, at::kFloat);
  optimizer_ = std::make_unique<Optimizer>(task_->trained(), train, task_->config(), dtype);
  if (from) optimizer_->load(from->weights, from->optimizer);
  task_->place(place, dtype);
  const ModelConfig& model = task_->config();
  const int64_t experts = model.has_experts() ? model.experts : 0;
  const auto& sources = task_->sources();
  buffer_ = std::make_unique<LossBuffer>(place, train.loss_extract_interval,
                                         static_cast<int64_t>(sources.size()), experts * model.layers);
  progress_ = std::make_unique<Progress>(sources, experts, train.steps);
  guard_ = std::make_unique<DivergenceGuard>(train, model.vocab_size, recipe_.data.source == "random");
  engine_ = std::make_unique<StepEngine>(
      device_, *optimizer_, *buffer_,
      [this](const auto& parts, const auto& scale, bool metrics) {
        return task_->loss(parts, scale, metrics);
      },
      processes_,
      EngineOptions{.graphs = train.graph != "off" && train.pools,
                    .time = train.time_parts,
                    .global = train.loss_norm == "global",
                    .forbid_syncs = train.debug_syncs});
  if (from) log::info("Resuming after step {}.", done_);
}

void Trainer::plan_steps() {
  auto& train = recipe_.train;
  if (train.epochs > 0)
    train.steps = steps_of_epochs(train.epochs, task_->epoch_samples(), step_samples(), done_, consumed_);
  if (train.steps == 0) throw usage_error("how long to train is not said: set train.steps or train.epochs.");
  settle_intervals(train);
}

void Trainer::go_on_from(const Checkpoint& checkpoint) {
  done_ = saved_ = checkpoint.step;
  const bool old = !checkpoint.metadata.contains("consumed");
  consumed_ =
      old ? consumed_before(done_, run_, *task_, processes_) : checkpoint.metadata["consumed"].get<int64_t>();
  nlohmann::json metadata = checkpoint.metadata;
  metadata.update(metadata_);
  metadata_ = std::move(metadata);
  if (metadata_.contains("best")) best_loss_ = metadata_["best"].value("loss", best_loss_);
  // Old checkpoints do not say: an evaluation that was made then is not made again.
  worse_ = metadata_.value("worse", worse_), evaluated_ = metadata_.value("evaluated", old ? done_ : 0);
}

void Trainer::announce() const {
  const auto& train = recipe_.train;
  const int64_t rows = train.micro_batch * train.accumulate * processes_.world();
  log::info("{} on {}, {}.", task_->description(), device_.description(),
            precision_name(train.precision, device_));
  const auto shared = fmt::format("{} accumulated x {} process{}", train.accumulate, processes_.world(),
                                  processes_.world() == 1 ? "" : "es");
  if (chooses_lr_) log::info("Learning rate {:.0e}, by the size of the model.", train.lr);
  const auto length = train.epochs > 0 ? fmt::format("{} epochs = {} steps", train.epochs, train.steps)
                                       : fmt::format("{} steps", train.steps);
  if (task_->config().translates())
    return log::info("Effective batch: up to {} target tokens x {}; {}.", task_->positions(), shared, length);
  log::info("Effective batch: {} rows x {} = {} rows, {} tokens a step; {}.", train.micro_batch, shared, rows,
            task_->positions() * train.accumulate * processes_.world(), length);
}

int64_t Trainer::step_samples() const {
  return recipe_.train.accumulate * processes_.world() * task_->samples();
}

std::unique_ptr<Feed> Trainer::open_feed(int64_t last) {
  const auto& train = recipe_.train;
  task_->open(done_ * train.accumulate, consumed_, processes_.rank(), processes_.world());
  staged_ = done_ * train.accumulate;
  return std::make_unique<Feed>(
      at::Device(device_.name()), [this, last] { return stage_next(last); },
      FeedOptions{.copy_stream = train.copy_stream, .ahead = train.copy_ahead, .time = train.time_parts});
}

std::optional<Staged> Trainer::stage_next(int64_t last) {
  const auto& train = recipe_.train;
  if (staged_ == last * train.accumulate) return {};
  const int64_t step = staged_++ / train.accumulate + 1;
  Staged staged = task_->next(recipe_.data.pin_memory && device_.is_cuda());
  if (staged.supervised == 0 && start_.empty_batches++ == 0) {
    log::warn(
        "Micro-batch {} holds no token to learn (its loss mask is all zero). More of them are only counted, "
        "as training/empty_batches in metrics.jsonl.",
        staged.index);
  }
  // Dropout draws from the seed and the place in the run alone: resuming needs no other state.
  const auto words = philox(static_cast<uint64_t>(train.seed),
                            static_cast<uint64_t>(staged.index * processes_.world() + processes_.rank()));
  staged.set(step_numbers(train, rates_at(train, step, task_->config().width), staged.supervised,
                          unit_of(*optimizer_, task_->positions())),
             static_cast<int64_t>(words[0] | uint64_t{words[1]} << 32));
  return staged;
}

void Trainer::step(int64_t step, Feed& feed) {
  const auto& train = recipe_.train;
  const auto began = Clock::now();
  const double waited = task_->waited();
  const bool metrics = due(recipe_.log, step - 1, step).datasets;
  // Also in the first step after resuming.
  engine_->count_flops(recipe_.log.flops == "profiler" &&
                       due(recipe_.log, flops_ == 0 ? 0 : step - 1, step).flops);
  double flops = 0, flops_tokens = 0;
  start_.step = step, start_.tokens = 0;
  start_.lr = optimizer_->lr(rates_at(train, step, task_->config().width));
  for (int64_t i = 0; i < train.accumulate; ++i) {
    const Staged& staged = engine_->pass(feed, i == 0, i + 1 == train.accumulate, metrics);
    start_.tokens += staged.tokens * processes_.world();
    start_.epoch = staged.epoch;
    if (engine_->flops() == 0) continue;
    flops += engine_->flops();
    flops_tokens += static_cast<double>(staged.tokens);
  }
  if (flops_tokens > 0) counted_flops_ = flops / flops_tokens;
  if (flops_ == 0) flops_ = processes_.broadcast_value(task_->flops_per_token());
  buffer_->finish(step);
  start_.waited = task_->waited() - waited;
  start_.seconds = seconds_since(began);
  host_seconds_ += start_.seconds - start_.waited;
  progress_->started(start_);
  done_ = step;
  consumed_ += step_samples();
}

void Trainer::extract(bool all) {
  buffer_->extract(engine_->syncs(), &processes_);
  for (const StepSums& sums : buffer_->arrived(all ? 0 : 1)) handle(sums);
}

void Trainer::handle(const StepSums& sums) {
  if (taken_) taken_->push_back(sums);
  guard_->step(sums);
  if (!std::isfinite(sums[LossBuffer::kLoss]))
    log::warn("The loss of step {} is not finite; its update was skipped, and averages leave it out.",
              sums.step);
  // A loss that was computed with the weights of the newest checkpoint has been judged: older ones may go.
  if (removal_due_ && sums.step > saved_ && guard_->healthy()) remove_old();
  const int64_t steps = progress_->line_steps() + 1;
  auto report = progress_->arrived(sums);
  if (!report) return;
  if (progress_->tokens() == 0) {
    throw data_error(
        "none of the tokens of the first {} steps is to be learned: the loss mask is all zero. See "
        "data.loss_after and the chat template, or 'tightloop data show'.",
        sums.step);
  }
  if (report->supervised == 0)
    return log::warn("Nothing was to be learned in the steps up to {}.", sums.step);
  report->set("syncs", engine_->syncs().total());
  if (device_.is_cuda()) {
    report->set("memory/allocated_gib", gib(memory_.allocated));
    report->set("memory/reserved_gib", gib(memory_.reserved));
    report->set("memory/peak_gib", gib(memory_.allocated_peak));
  }
  const double peak = device_.data_sheet_flops() * processes_.world();
  const double speed = counted_flops_.value_or(flops_) * *report->number("perf/tokens_per_second");
  if (const auto mfu = utilization(speed, peak)) report->set("perf/mfu", *mfu);
  report->set("perf/flops_per_token", flops_);
  if (counted_flops_) report->set("perf/flops_per_token_counted", *counted_flops_);
  report->due = due(recipe_.log, sums.step - steps, sums.step, sums.step == recipe_.train.steps);
  if (metrics_) metrics_->interval(*report);
}

void Trainer::look_after_memory(int64_t step) {
  const bool told = due(recipe_.log, step - 1, step, step == recipe_.train.steps).memory;
  if (device_.is_cuda() && (told || memory_is_checked(step))) memory_ = device_.memory_stats();
  // On a CPU asking for the total reads files, and there is no cache.
  const int64_t total = device_.is_cuda() ? device_.total_memory() : 0;
  if (empties_cache(recipe_.train, step, memory_, total)) device_.empty_cache();
}

bool Trainer::stop_wanted(int64_t step) {
  if (processes_.world() == 1) return interrupted();
  // All must stop at the same step, and agreeing costs a round of messages.
  return step % recipe_.train.loss_extract_interval == 0 && processes_.any(interrupted());
}

bool Trainer::save_is_due(int64_t step) {
  const auto& train = recipe_.train;
  const bool agrees = processes_.world() == 1 || step % train.loss_extract_interval == 0;
  if (train.save_minutes == 0 || !agrees) return false;
  return processes_.any(processes_.main() && seconds_since(save_tried_) >= 60 * train.save_minutes);
}

bool Trainer::evaluates_at(int64_t step) const {
  const auto& train = recipe_.train;
  return step == train.steps || (train.eval_steps > 0 && step % train.eval_steps == 0);
}

void Trainer::check_held_out() {
  const auto why = task_->why_no_evaluation();
  can_evaluate_ = why.empty();
  if (!can_evaluate_) log::warn("There will be no evaluation on held-out data: {}", why);
}

TrainResult Trainer::run() {
  const auto& train = recipe_.train;
  const int64_t last = train.stop_at > 0 ? std::min(train.stop_at, train.steps) : train.steps;
  const auto feed = open_feed(last);
  if (processes_.main()) {
    announce();
    check_held_out();
    files_.emplace(run_);
    metrics_ = std::make_unique<Metrics>(recipe_.log, standard_sinks(run_.metrics(), done_));
  }
  TrainResult result;
  const auto started = save_tried_ = Clock::now();
  engine_->restart_clock();

  StepWatch watch(train.steps, device_.is_cuda(), processes_.world() > 1, processes_.main());
  Next next = Next::kGoOn;
  // A run that was stopped between a save and its evaluation makes up for it.
  if (done_ > 0 && evaluates_at(done_) && evaluated_ != done_) next = evaluate(done_, result);
  for (int64_t step = done_ + 1; step <= last && next == Next::kGoOn; ++step) {
    const double epoch = start_.epoch;
    watch.begin(step);
    this->step(step, *feed);
    if (stop_wanted(step)) next = Next::kInterrupted;
    const bool evaluating = evaluates_at(step) && next == Next::kGoOn;
    const bool ending = step == last || next != Next::kGoOn;
    const bool saving_anyway =
        ending || (train.save_steps > 0 && step % train.save_steps == 0) || (evaluating && train.keep_best);
    const bool saving = saving_anyway || save_is_due(step);
    if (step % train.logging_steps == 0 || ending) progress_->end_line();
    if (step % train.loss_extract_interval == 0 || buffer_->full() || saving || evaluating ||
        std::floor(start_.epoch) > std::floor(epoch))
      extract(/*all=*/train.loss_extract_interval == 1 || saving || evaluating);
    if (metrics_ && terminal::is_live()) metrics_->interval(progress_->running());
    look_after_memory(step);
    watch.end(progress_->any_line());
    if (step == train.steps) guard_->finish();
    if (saving) save(step, ending, /*passing=*/train.save_steps > 0 && !saving_anyway);
    if (evaluating) next = evaluate(step, result);
    if (next != Next::kGoOn && saved_ < step) save(step, /*last=*/true);
    if (saving || evaluating) engine_->restart_clock();
  }
  extract(/*all=*/true);
  if (removal_due_ && guard_->healthy()) remove_old();
  task_->settle();
  result.step = done_;
  result.stopped_early = next == Next::kStopEarly;
  result.interrupted = next == Next::kInterrupted;
  result.mean_loss = progress_->mean_loss();
  if (metrics_) result.losses = metrics_->finish();
  result.seconds = seconds_since(started);
  return result;
}

Trainer::Next Trainer::evaluate(int64_t step, TrainResult& result) {
  engine_->syncs().count("evaluate");
  enum { kNext, kMeasured, kLoss, kSize };
  const at::Tensor decision = at::zeros({kSize}, at::kDouble);
  auto* said = decision.mutable_data_ptr<double>();
  if (processes_.main()) {
    const auto loss = measure(step);
    said[kMeasured] = loss.has_value(), said[kLoss] = loss.value_or(0);
    if (loss && std::isfinite(*loss)) remember(step, *loss);
    const bool early = loss && recipe_.train.patience > 0 && worse_ >= recipe_.train.patience;
    said[kNext] = static_cast<double>(interrupted() ? Next::kInterrupted
                                      : early       ? Next::kStopEarly
                                                    : Next::kGoOn);
  }
  processes_.broadcast(decision);
  if (said[kMeasured] != 0) {
    result.held_out_loss = said[kLoss];
    guard_->evaluated(step, said[kLoss]);
    if (removal_due_ && saved_ == step) remove_old();
  }
  const auto next = static_cast<Next>(said[kNext]);
  if (next == Next::kStopEarly && processes_.main())
    log::info("Stopping: the held-out loss has not fallen for {} evaluations; it was best at step {}.",
              worse_, metadata_["best"]["step"].get<int64_t>());
  return next;
}

std::optional<double> Trainer::measure(int64_t step) {
  if (!can_evaluate_) return {};
  if (recipe_.train.keep_best && saved_ < step) return {};  // the best must be on disk
  Task::Evaluation values;
  const auto failed = [&](const char* what, const std::exception& error) {
    if (interrupted()) return;
    const std::string text = error.what();
    log::warn("step {}: {} on held-out data failed, training goes on: {}", step, what,
              text.substr(0, text.find('\n')));
    device_.empty_cache();
  };
  try {
    values = task_->evaluate();
  } catch (const std::exception& error) {
    failed("the loss", error);
    return {};
  }
  try {
    auto more = more_evaluation_ ? more_evaluation_() : Task::Evaluation();
    if (interrupted()) return {};
    std::ranges::move(more, std::back_inserter(values));
  } catch (const std::exception& error) {
    failed("what is measured besides the loss", error);
    if (interrupted()) return {};
  }
  nlohmann::json line{{"global_step", step}};
  std::string text;
  for (const auto& [name, value] : values) {
    line[name] = value;
    text += (text.empty() ? "" : ", ") + evaluation_text(name, value);
  }
  metrics_->line(line);
  log::info("step {}: {}", step, text);
  return values.front().second;
}

void Trainer::remember(int64_t step, double loss) {
  if (loss < best_loss_) {
    best_loss_ = loss, worse_ = 0;
    metadata_["best"] = {{"step", step}, {"loss", loss}};
  } else {
    ++worse_;
  }
  metadata_["worse"] = worse_, metadata_["evaluated"] = evaluated_ = step;
  if (saved_ != step) return;
  try {
    update_metadata(run_.checkpoints(), step, metadata_);
  } catch (const std::exception& error) {
    log::warn("The evaluation of step {} is not in its checkpoint: {}", step, error.what());
  }
}

void Trainer::save(int64_t step, bool last, bool passing) {
  engine_->syncs().count("save");
  save_tried_ = Clock::now();
  if (metrics_) metrics_->flush();
  // All losses were read, so the device is done with the step. A peer that died in it may have left the sums
  // of gradients half done: those weights are not saved.
  processes_.check();
  guard_->before_save();
  bool saved = true;
  if (processes_.main()) {
    metadata_.update(origin_);
    metadata_["consumed"] = consumed_, metadata_["evaluates"] = can_evaluate_;
    const int64_t before = metadata_.value("passing", int64_t{0});
    metadata_.erase("passing");
    if (passing) metadata_["passing"] = step;
    auto weights = optimizer_->weights();
    std::ranges::move(task_->frozen(), std::back_inserter(weights));
    try {
      const RunFolder to = files_->restore(last);
      write_settings(to, recipe_);  // those of a resume count from its first checkpoint on
      save_checkpoint(to.checkpoints(), step, weights, optimizer_->state(), /*keep=*/0, metadata_);
      if (to.root() != run_.root())
        throw checkpoint_error(
            "'{}' is not the folder that this run was started in: it was removed or moved, and another one "
            "has taken its name. Step {} is saved in '{}' instead.",
            run_.root().string(), step, to.root().string());
      run_.saved();
      replaced_ = before;
    } catch (const std::exception& error) {
      if (last) throw;
      if (before > 0) metadata_["passing"] = before;
      log::warn("{} Training goes on; the next save will be tried.", error.what());
      saved = false;
    }
  }
  if (processes_.any(!saved)) return;
  saved_ = step, removal_due_ = true;
}

void Trainer::remove_old() {
  removal_due_ = false;
  if (!processes_.main()) return;
  const bool keeps_best = recipe_.train.keep_best && metadata_.contains("best");
  const int64_t best = keeps_best ? metadata_["best"]["step"].get<int64_t>() : 0;
  remove_old_checkpoints(run_.checkpoints(), saved_, recipe_.train.keep_checkpoints, best, replaced_);
}

}  // namespace tightloop
