#include "train/run/run_history.h"

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "core/error.h"
#include "core/log.h"
#include "train/run/run_settings.h"

namespace tightloop {

namespace {

bool says_consumed(const Checkpoint& checkpoint) { return checkpoint.metadata.contains("consumed"); }

}  // namespace

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
  saved_ = checkpoint.step;
  if (metadata_.contains("best")) best_loss_ = metadata_["best"].value("loss", best_loss_);
  worse_ = metadata_.value("worse", worse_);
  // Old checkpoints do not say: an evaluation that was made then is not made again.
  evaluated_ = metadata_.value("evaluated", says_consumed(checkpoint) ? 0 : saved_);
}

void RunHistory::keep_origin() { origin_ = origin_of(recipe_, run_); }

void RunHistory::begin() {
  if (processes_.main()) files_.emplace(run_);
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

void RunHistory::save(int64_t step, const std::function<RunState()>& state, bool last, bool passing) {
  save_tried_ = std::chrono::steady_clock::now();
  bool saved = true;
  if (processes_.main()) {
    const int64_t before = metadata_.value("passing", int64_t{0});
    metadata_.erase("passing");
    if (passing) metadata_["passing"] = step;
    const RunState now = state();
    try {
      write(step, now, last);
      replaced_ = before;
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - save_tried_;
      note(step, RunEvent::kSaved, fmt::format("step {} saved in {:.1f} s", step, took.count()),
           {{"seconds", took.count()}});
    } catch (const std::exception& error) {
      note(step, RunEvent::kSaveFailed, error.what());
      if (last) throw;
      if (before > 0) metadata_["passing"] = before;
      log::warn("{} Training goes on; the next save will be tried.", error.what());
      saved = false;
    }
  }
  if (processes_.any(!saved)) return;
  saved_ = step, removal_is_due_ = true;
}

void RunHistory::write(int64_t step, const RunState& state, bool last) {
  metadata_.update(origin_);
  metadata_["consumed"] = state.consumed, metadata_["evaluates"] = state.evaluates;
  const RunFolder to = files_->restore(last);
  write_settings(to, recipe_);  // those of a resume count from its first checkpoint on
  save_checkpoint(to.checkpoints(), step, state.weights, state.optimizer, /*keep=*/0, metadata_);
  if (to.root() != run_.root())
    throw checkpoint_error(
        "'{}' is not the folder that this run was started in: it was removed or moved, and another one "
        "has taken its name. Step {} is saved in '{}' instead.",
        run_.root().string(), step, to.root().string());
  run_.saved();
}

void RunHistory::keep_evaluation(int64_t step, double loss) {
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

void RunHistory::remove_old() {
  removal_is_due_ = false;
  if (!processes_.main()) return;
  const auto& train = recipe_.train;
  const int64_t best = train.keep_best && metadata_.contains("best") ? best_step() : 0;
  remove_old_checkpoints(run_.checkpoints(), saved_, train.keep_checkpoints, best, replaced_);
}

}  // namespace tightloop
