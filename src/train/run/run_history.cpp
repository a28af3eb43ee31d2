#include "train/run/run_history.h"

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "core/terminal/progress_line.h"
#include "core/terminal/terminal.h"
#include "train/run/run_files.h"
#include "train/run/run_settings.h"
#include "train/run/shared_files.h"
#include "train/run/snapshot.h"

namespace tightloop {

namespace {

bool says_consumed(const Checkpoint& checkpoint) { return checkpoint.metadata.contains("consumed"); }

}  // namespace

struct RunHistory::Order {
  int64_t step = 0;
  Snapshot state;
  std::shared_ptr<SharedCheckpoint> shared;
  nlohmann::json metadata;
  Recipe recipe;
  bool last = false, waits = false;  // for its end
  std::chrono::steady_clock::time_point asked;
  double held_up = 0;  // seconds that training waited until it could go on
};

RunHistory::RunHistory(const RunFolder& run, Recipe& recipe, Processes& processes, Device& device)
    : run_(run), recipe_(recipe), processes_(processes), device_(device), events_(run.events()) {}
RunHistory::~RunHistory() = default;

int64_t samples_consumed(const Checkpoint& checkpoint, const RunFolder& run, Processes& processes) {
  if (says_consumed(checkpoint)) return checkpoint.metadata["consumed"].get<int64_t>();
  Recipe before;
  if (processes.main()) before.bind().load(run.config());
  const int64_t rows = before.model.translates() ? 1 : before.train.micro_batch;
  const at::Tensor count =
      at::full({}, checkpoint.step * before.train.accumulate * rows * processes.world(), at::kLong);
  processes.broadcast(count);
  return count.item<int64_t>();
}

void RunHistory::go_on_from(const Checkpoint& checkpoint) {
  nlohmann::json metadata = checkpoint.metadata;
  metadata.update(metadata_);
  metadata_ = std::move(metadata);
  saved_ = on_disk_ = checkpoint.step, named_best_ = best_step_in(metadata_);
  if (!best_.go_on_from(metadata_)) {
    log::info("train.best_by was {}, is {}: the best evaluation is looked for anew.",
              metadata_["best"].value("by", "loss"), name_of(recipe_.train.best_by));
    forget_best(checkpoint.step);
  } else if (const auto former = metadata_.find("former_best"); former != metadata_.end()) {
    former_best_ = former->value("step", int64_t{0}), former_until_ = former->value("until", int64_t{0});
  }
  // Old checkpoints do not say: an evaluation that was made then is not made again.
  evaluated_ = metadata_.value("evaluated", says_consumed(checkpoint) ? 0 : saved_);
}

void RunHistory::keep_origin(const Checkpoint* from) {
  origin_ = origin_of(recipe_, run_);
  if (!from || !from->metadata.contains("best")) return;
  nlohmann::json now = metadata_;
  now.update(origin_);
  const auto why = measured_otherwise(from->metadata, now, settings_of(from->metadata, recipe_), recipe_);
  if (why.empty()) return;
  compares_anew_ = fmt::format(
      "{}: evaluations cannot be compared with earlier ones, of which step {} was the best. The best is "
      "looked for anew; until there is one, that checkpoint stays.",
      why, best_step_in(from->metadata));
  if (best_.step() > 0) forget_best(from->step);
}

void RunHistory::forget_best(int64_t until) {
  former_best_ = best_step_in(metadata_), former_until_ = until;
  metadata_["former_best"] = {{"step", former_best_}, {"until", former_until_}};
  metadata_.erase("best"), metadata_.erase("worse");
  best_ = BestEvaluation(recipe_.train.best_by);
}

void RunHistory::begin() {
  if (processes_.main()) files_ = std::make_unique<RunFiles>(run_);
  save_tried_ = std::chrono::steady_clock::now();
}

void RunHistory::note(int64_t step, RunEvent event, const std::string& text, const nlohmann::json& more) {
  if (processes_.main()) events_.add(step, event, text, more);
}

bool RunHistory::save_is_due(int64_t step) const {
  const auto& train = recipe_.train;
  const bool agrees = processes_.world() == 1 || step % train.loss_extract_interval == 0;
  if (train.save_minutes == 0 || !agrees) return false;
  const std::chrono::duration<double, std::ratio<60>> since = std::chrono::steady_clock::now() - save_tried_;
  return processes_.any(processes_.main() && since.count() >= train.save_minutes);
}

void RunHistory::wait() {
  if (worker_.idle()) return;
  ProgressLine progress(fmt::format("Saving step {}", saved_), bytes_);
  progress.count_from([this] { return written_.load(); });
  worker_.wait();
}

bool RunHistory::wait_for_copy() {
  const bool any = !worker_.idle();
  wait();
  return any;
}

bool RunHistory::wait_before_next() {
  const auto began = std::chrono::steady_clock::now();
  const bool any = wait_for_copy();
  waited_before_ += std::chrono::steady_clock::now() - began;
  return any;
}

RunHistory::Outcome RunHistory::outcome() {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

void RunHistory::finish() {
  wait();
  if (const auto [step, error] = outcome(); error && step == saved_) std::rethrow_exception(error);
}

void RunHistory::plan_passing(int64_t step, bool passing) {
  // Where the save before failed, what it was to replace is there still.
  if (on_disk_ == saved_) {
    passing_ = metadata_.value("passed", std::vector<int64_t>());
    if (metadata_.value("passing", int64_t{0}) == on_disk_ && on_disk_ > 0) passing_.push_back(on_disk_);
  }
  metadata_.erase("passing"), metadata_.erase("passed");
  replaced_ = passing_, beside_ = 0;
  if (!passing) return;
  metadata_["passing"] = step;
  if (passing_.empty()) return;
  beside_ = passing_.back();
  replaced_.pop_back();
  metadata_["passed"] = std::vector<int64_t>{beside_};
}

std::optional<Snapshot> RunHistory::copy_of(const RunSnapshot& state, bool last) {
  // That syncs are forbidden counts for every thread of the process, so that none may write meanwhile.
  if (last || recipe_.train.debug_syncs) return {};
  if (state.fresh) return Snapshot::of({state.weights, state.optimizer});
  auto copy = Snapshot::take({state.weights, state.optimizer}, device_);
  if (copy || std::exchange(told_of_waiting_, true)) return copy;
  log::info(
      "Training waits while checkpoints are written: there is no memory for a copy of {} beside it. {} has "
      "{} "
      "left{}.",
      human_bytes(static_cast<double>(bytes_of(state.weights) + bytes_of(state.optimizer))), device_.name(),
      human_bytes(static_cast<double>(device_.room())),
      device_.is_cuda()
          ? fmt::format(", the host {}", human_bytes(static_cast<double>(cpu_device().free_memory())))
          : "");
  return {};
}

void RunHistory::save(int64_t step, const std::function<RunSnapshot()>& state, bool last, bool passing,
                      bool shared) {
  save_tried_ = std::chrono::steady_clock::now();
  const auto asked = save_tried_ - std::exchange(waited_before_, {});
  if (processes_.main() || shared) {
    wait();  // one copy at a time
    if (processes_.main()) plan_passing(step, passing);
    const RunSnapshot now = state();
    if (processes_.main()) {
      metadata_.update(origin_);
      metadata_["consumed"] = now.consumed, metadata_["evaluates"] = now.evaluates;
      metadata_["totals"] = now.totals;
    }
    auto copy = copy_of(now, last);
    const bool waits = !copy;
    if (!copy) copy = Snapshot::of({now.weights, now.optimizer});
    copy->share(0, now.frozen);
    bytes_ = bytes_of((*copy)[0]) + bytes_of((*copy)[1]), written_ = 0;  // that this process writes
    const std::chrono::duration<double> held_up = std::chrono::steady_clock::now() - asked;
    worker_.add([this, order = std::make_shared<const Order>(step, std::move(*copy), now.shared, metadata_,
                                                             recipe_, last, waits, asked, held_up.count())] {
      processes_.main() ? write(*order) : help(*order);
    });
    saved_ = step;
    if (waits) wait();
    if (last && processes_.main()) finish();
  }
  saved_ = step, removal_is_due_ = true;
  if (last) processes_.barrier();  // the others end after the main one has saved
}

RunFolder RunHistory::write_checkpoint(const Order& order) {
  try {
    const RunFolder to = files_->restore(order.last);
    Recipe recipe = order.recipe;
    write_settings(to, recipe);  // those of a resume count from its first checkpoint on
    const auto wrote = [this](uint64_t bytes) { written_ += bytes; };
    if (order.shared) {
      const auto write = [&](const std::filesystem::path& folder) {
        return order.shared->write(folder, {order.state[0], order.state[1], wrote});
      };
      save_checkpoint_files(to.checkpoints(), order.step, order.shared->bytes(), write, order.metadata);
    } else {
      save_checkpoint(to.checkpoints(), order.step, order.state[0], order.state[1], order.metadata, wrote);
    }
    return to;
  } catch (const Error& error) {
    if (!order.last) throw;
    const std::string next =
        on_disk_ > 0 ? fmt::format(
                           "Mend that, then go on from step {}, the newest that is saved: tightloop "
                           "train --resume {}",
                           on_disk_, shell_word(run_.root().string()))
                     : "No step of this run is saved: mend that, then train it again.";
    throw checkpoint_error("{} {}", error.what(), next);
  }
}

void RunHistory::help(const Order& order) {
  try {
    const Snapshot::Reading reading(order.state);
    order.shared->help(run_.checkpoints(), {order.state[0], order.state[1], {}});
  } catch (const std::exception&) {
    // A peer is gone: whatever this process does next finds that, and says so.
  }
}

void RunHistory::write(const Order& order) {
  const Processes::Unhurried unhurried(processes_);
  const auto [step, error] = [&]() -> Outcome {
    try {
      const Snapshot::Reading reading(order.state);
      const RunFolder to = write_checkpoint(order);
      if (to.root() != run_.root())
        throw checkpoint_error(
            "'{}' is not the folder that this run was started in: it was removed or moved, and another one "
            "has taken its name. Step {} is saved in '{}' instead.",
            run_.root().string(), order.step, to.root().string());
      run_.saved();
      return {order.step, nullptr};
    } catch (const std::exception& failure) {
      events_.add(order.step, RunEvent::kSaveFailed, failure.what());
      if (!order.last) log::warn("{} Training goes on; the next save will be tried.", failure.what());
      return {order.step, std::current_exception()};
    }
  }();
  if (order.shared) order.shared->end();
  if (!error) {
    on_disk_ = step, named_best_ = best_step_in(order.metadata);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - order.asked;
    const double held_up = order.waits ? took.count() : order.held_up;
    events_.add(step, RunEvent::kSaved,
                fmt::format("step {} saved in {:.1f} s, {} ms of which training waited", step, took.count(),
                            std::lround(1000 * held_up)),
                {{"seconds", took.count()},
                 {"held_up", held_up},
                 {"bytes", order.shared ? order.shared->bytes() : written_.load()}});
  }
  const std::lock_guard lock(mutex_);
  outcome_ = {step, error};
}

void RunHistory::keep_evaluation(int64_t step, const Measured& measured) {
  best_.add(step, measured);
  best_.keep_in(metadata_);
  metadata_["evaluated"] = evaluated_ = step;
  if (saved_ != step) return;
  worker_.add([this, step, metadata = metadata_] {
    if (on_disk_ != step) return;
    try {
      update_metadata(run_.checkpoints(), step, metadata);
      named_best_ = best_step_in(metadata);
    } catch (const std::exception& error) {
      log::warn("The evaluation of step {} is not in its checkpoint: {}", step, error.what());
    }
  });
}

bool RunHistory::roll_back(const Checkpoint& checkpoint, int64_t from, int64_t consumed) {
  nlohmann::json rollbacks = checkpoint.metadata.value("rollbacks", nlohmann::json::array());
  int64_t before = 0;
  for (const auto& one : rollbacks) before += one.value("to", int64_t{0}) == checkpoint.step;
  if (before >= kMostRollbacks)
    throw Error(
        ExitCode::kFailure,
        fmt::format("the loss spiked again at step {}, after {} rollbacks to the checkpoint of step {}: "
                    "it is not the data of a few steps. Resume with a smaller learning rate, or with "
                    "--train.on_spike warn.",
                    from, before, checkpoint.step));
  rollbacks.push_back({{"from", from}, {"to", checkpoint.step}, {"consumed", consumed}});
  nlohmann::json metadata = checkpoint.metadata;
  // Samples that no step learns from: they are no part of how long a run is.
  metadata["passed_over"] =
      metadata.value("passed_over", int64_t{0}) + consumed - metadata.value("consumed", consumed);
  metadata["rollbacks"] = std::move(rollbacks), metadata["consumed"] = consumed;
  // What this checkpoint says of the best cannot be compared with what this run measures.
  if (former_best_ > 0 && checkpoint.step <= former_until_) {
    metadata.erase("best"), metadata.erase("worse");
    metadata["former_best"] = {{"step", former_best_}, {"until", former_until_}};
  }
  bool told = true;
  try {
    if (processes_.main()) update_metadata(run_.checkpoints(), checkpoint.step, metadata);
  } catch (const std::exception& error) {
    log::warn("The run cannot go back to step {}, and goes on as it is: {}", checkpoint.step, error.what());
    told = false;
  }
  if (processes_.any(!told)) return false;
  metadata_ = std::move(metadata);
  // A later save may have failed.
  saved_ = on_disk_ = checkpoint.step, named_best_ = best_step_in(metadata_);
  replaced_.clear(), waited_before_ = {};
  best_ = BestEvaluation(recipe_.train.best_by);
  best_.go_on_from(metadata_);
  evaluated_ = metadata_.value("evaluated", int64_t{0});
  return true;
}

void RunHistory::remove_old() {
  removal_is_due_ = false;
  if (!processes_.main()) return;
  const auto& train = recipe_.train;
  Retention retention{.newest = saved_,
                      .keep = train.keep_checkpoints,
                      .best = !train.keep_best   ? 0
                              : best_.step() > 0 ? best_.step()
                                                 : former_best_,
                      .every = train.keep_every,
                      .beside = beside_,
                      .replaced = replaced_};
  worker_.add([this, retention]() mutable {
    if (on_disk_ != retention.newest) return;
    if (retention.best > 0) retention.named_best = named_best_;
    remove_old_checkpoints(run_.checkpoints(), retention);
  });
}

}  // namespace tightloop
