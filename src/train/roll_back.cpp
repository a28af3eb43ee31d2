// What a rollback does (train.on_spike): the run goes on as one that was resumed at its newest checkpoint
// would, with the data moved on.
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "core/interrupt.h"
#include "core/log.h"
#include "train/engine/feed.h"
#include "train/engine/step_engine.h"
#include "train/guard/step_guard.h"
#include "train/run/checkpoint.h"
#include "train/run/run_share.h"
#include "train/trainer.h"

namespace tightloop {

std::optional<Checkpoint> Trainer::newest_on_disk() {
  const at::Tensor step = at::full({}, history_.on_disk(), at::kLong);
  processes_.broadcast(step);
  const auto to = step.item<int64_t>();
  if (to == 0) {
    if (processes_.main())
      log::warn("There is no checkpoint to return to yet: the run goes on. See train.save_steps.");
    return {};
  }
  if (share_) share_->send_checkpoint(to);
  std::optional<Checkpoint> checkpoint;
  try {
    checkpoint = load_checkpoint(run_.checkpoints(), to);
  } catch (const std::exception& error) {
    log::warn("The run cannot go back to step {}, and goes on as it is: {}", to, error.what());
  }
  // Nobody reads on when the main process tells the checkpoint.
  if (processes_.any(!checkpoint)) return {};
  return checkpoint;
}

bool Trainer::roll_back(int64_t spike, int64_t last) {
  history_.wait();
  engine_->syncs().count("roll_back");
  const InterruptsHeld held;  // the next step stops: what is half way back is nothing to save
  const auto checkpoint = newest_on_disk();
  // After the spike, however many steps were started before it was seen.
  const int64_t consumed = consumed_ - (done_ - spike) * step_samples();
  if (!checkpoint || !history_.roll_back(*checkpoint, spike, consumed)) {
    guard_->forgive();
    return false;
  }
  const int64_t to = checkpoint->step;
  const auto text = fmt::format(
      "Back to the checkpoint of step {} because of the spike at step {}. The data goes on after that step, "
      "so "
      "that steps {} to {} are made again with other data.",
      to, spike, to + 1, spike);
  if (processes_.main()) log::warn("{}", text);
  history_.note(spike, RunEvent::kRolledBack, text, {{"to", to}, {"consumed", consumed}});
  optimizer_->load(checkpoint->weights, checkpoint->optimizer);
  guard_->reset(checkpoint->optimizer);
  done_ = to, consumed_ = consumed;
  progress_ = make_progress();
  progress_->go_on_from(checkpoint->metadata.value("totals", nlohmann::json()));
  open_feed(last);
  if (metrics_) {
    metrics_->rewind(to);
    samples_->rewind(to);
  }
  engine_->restart_clock();
  return true;
}

}  // namespace tightloop
