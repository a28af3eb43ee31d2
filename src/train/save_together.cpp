// How several processes save a state of which each has a part.
#include "train/guard/step_guard.h"
#include "train/run/checkpoint.h"
#include "train/run/shared_files.h"
#include "train/trainer.h"

namespace tightloop {

void Trainer::share_weights() {
  if (!processes_.several()) return;
  for (const auto& parameter : task_->trained().all()) processes_.broadcast(parameter.value);
  for (const auto& [name, tensor] : task_->frozen()) processes_.broadcast(tensor);
}

RunSnapshot Trainer::snapshot() const {
  return {.consumed = consumed_, .totals = progress_->totals(), .evaluates = evaluator_->possible()};
}

bool Trainer::save_together(int64_t step, bool last, bool passing) {
  history_.wait();
  const auto failed = [&] { return processes_.any(processes_.main() && history_.save_failed()); };
  // Where it did not work once, the main process collects all from then on.
  if (shared_files_ && !shared_files_->given_up() && failed()) shared_files_->give_up();
  if (shared_files_ && shared_files_->given_up()) return false;
  if (!shared_files_)
    shared_files_ = std::make_shared<SharedCheckpoint>(
        SharedFile(kWeightsFile, optimizer_->weight_slices(), task_->frozen(), processes_),
        SharedFile(kOptimizerFile, optimizer_->state_slices(), guard_->state(), processes_), processes_);
  const auto state = [&] {
    RunSnapshot now = snapshot();
    now.weights = shared_files_->weights().own(optimizer_->weight_slices(), {});
    now.optimizer = shared_files_->optimizer().own(optimizer_->state_slices(), guard_->state());
    now.shared = shared_files_;
    if (processes_.main()) now.frozen = task_->frozen();
    return now;
  };
  history_.save(step, state, /*last=*/false, passing, /*shared=*/true);
  if (!last) return true;
  history_.wait();
  return !failed();
}

}  // namespace tightloop
