// What a rollback does (train.on_spike): the run goes on as one that was resumed at its newest checkpoint
// would, with the data moved on.
#include <fmt/format.h>

#include "core/log.h"
#include "train/run/checkpoint.h"
#include "train/trainer.h"

namespace tightloop {

bool Trainer::roll_back(int64_t spike, int64_t last) {
  history_.wait();
  const int64_t to = history_.saved();
  if (!processes_.any(processes_.main() && to > 0 && history_.is_saved(to))) {
    guard_->forgive();
    if (processes_.main())
      log::warn("There is no checkpoint to return to yet: the run goes on. See train.save_steps.");
    return false;
  }
  engine_->syncs().count("roll_back");
  processes_.barrier();
  const Checkpoint checkpoint = load_checkpoint(run_.checkpoints(), to);
  // After the spike, however many steps were started before it was seen.
  const int64_t consumed = consumed_ - (done_ - spike) * step_samples();
  history_.roll_back(checkpoint, spike, consumed);
  const auto text = fmt::format(
      "Back to the checkpoint of step {} because of the spike at step {}. The data goes on after that step, so "
      "that steps {} to {} are made again with other data.",
      to, spike, to + 1, spike);
  if (processes_.main()) log::warn("{}", text);
  history_.note(spike, RunEvent::kRolledBack, text, {{"to", to}, {"consumed", consumed}});
  optimizer_->load(checkpoint.weights, checkpoint.optimizer);
  guard_->reset(checkpoint.optimizer);
  done_ = to, consumed_ = consumed;
  progress_ = make_progress();
  progress_->go_on_from(checkpoint.metadata.value("totals", nlohmann::json()));
  open_feed(last);
  if (metrics_) {
    metrics_->rewind(to);
    samples_->rewind(to);
  }
  engine_->restart_clock();
  return true;
}

}  // namespace tightloop
