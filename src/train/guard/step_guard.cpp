#include "train/guard/step_guard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>

#include "core/log.h"
#include "train/guard/straggler_watch.h"
#include "train/run/checkpoint.h"

namespace tightloop {

namespace {

constexpr const char* kState = "spikes";  // in optimizer.safetensors

/// While fp16 looks for its loss scale, skipped updates are nothing to look into, up to here.
constexpr int64_t kManySearched = 10;

std::string weights_note(int64_t step, int64_t done) {
  if (done <= step) return "";
  return fmt::format(" Looked into after step {}, with the weights of then.", done);
}

}  // namespace

StepGuard::StepGuard(const TrainConfig& train, const ModelConfig& model, bool random_data,
                     const RunFolder& run, RunHistory& history, Processes& processes, at::Device device)
    : train_(train),
      vocab_size_(model.vocab_size),
      random_data_(random_data),
      folder_(run),
      history_(history),
      processes_(processes),
      spikes_(train.spike_deviations) {
  divergence_ = make_divergence();
  if (train.on_spike == OnSpike::kSkip)
    device_spikes_ = std::make_unique<DeviceSpikeFilter>(device, train.spike_deviations);
  if (processes.world() > 1)
    stragglers_ =
        std::make_unique<StragglerWatch>(processes, [](const std::string& text) { log::warn("{}", text); });
}

StepGuard::~StepGuard() = default;

std::unique_ptr<DivergenceGuard> StepGuard::make_divergence() const {
  return std::make_unique<DivergenceGuard>(train_, vocab_size_, random_data_,
                                           [this](int64_t step) { return way_back(step); });
}

// All processes ask, for all have the same losses; those without a shared disk do not see the checkpoints.
std::string StepGuard::way_back(int64_t step) const {
  return processes_.broadcast_text(processes_.main() ? way_back_here(step) : "");
}

// The weights of a checkpoint are those of the step after it, which must be a good one.
std::string StepGuard::way_back_here(int64_t step) const {
  const auto steps = checkpoint_steps(folder_.checkpoints());
  int64_t good = 0;
  for (const int64_t saved : steps)
    if (saved + 1 < step) good = saved;
  if (good == 0) return "There is no checkpoint of before to go on from.";
  const auto command = fmt::format("'tightloop train --resume {}'", folder_.root().string());
  if (good == steps.back())
    return fmt::format("The last good checkpoint is that of step {}: {} goes on from it.", good, command);
  return fmt::format(
      "The last good checkpoint is that of step {}: move those of later steps out of '{}', then {} goes on "
      "from it.",
      good, folder_.checkpoints().string(), command);
}

void StepGuard::step(const StepSums& sums, int64_t done) {
  if (stragglers_) stragglers_->step(sums, run_ ? run_->task.waited() : 0);
  if (spike_ > 0) return held_back_.push_back(sums);
  if (!sums[LossBuffer::kSkipped] || sums[LossBuffer::kSpike] != 0)
    skipped_in_a_row_ = searched_in_a_row_ = 0;
  else
    judge_skip(sums, done);
  if (sums[LossBuffer::kTokens] > 0) judge_spike(sums, done);
  if (spike_ > 0) return held_back_.push_back(sums);
  divergence_->step(sums);
}

void StepGuard::forgive() {
  spike_ = 0;
  for (const StepSums& sums : std::exchange(held_back_, {})) divergence_->step(sums);
}

void StepGuard::judge_skip(const StepSums& sums, int64_t done) {
  const bool finite = std::isfinite(sums[LossBuffer::kLoss]), empty = sums[LossBuffer::kTokens] == 0;
  const bool searching = finite && !empty && sums[LossBuffer::kLossScale] > 1;
  const bool incident = searching ? ++searched_in_a_row_ == kManySearched : ++skipped_in_a_row_ == 1;
  if (!incident || !run_ || diagnoses_ >= kMostDiagnoses) return;
  ++diagnoses_;
  const std::string what = fmt::format("Step {} made no update: {}.", sums.step,
                                       empty    ? "it had nothing to learn"
                                       : finite ? "gradients were not finite"
                                                : "its loss was not finite, and averages leave it out");
  Diagnosis found;
  run_->optimizer.refresh_weights();  // of dist.shard: all are looked at as of the same step
  try {
    found = diagnose(*run_, sums);
  } catch (const std::exception& error) {
    run_->optimizer.drop_gradients();
    found.text = fmt::format(" Why could not be found out: {}", error.what());
  }
  std::string text =
      what + (found.text.starts_with(' ') ? "" : " ") + found.text + weights_note(sums.step, done);
  if (diagnoses_ == kMostDiagnoses) text += " More of these are only counted, as training/skipped_steps.";
  // Of several processes each has looked at its own rows.
  if (!processes_.main() && found.cause == SkipCause::kUnknown) return;
  log::warn("{}{}", processes_.world() > 1 ? fmt::format("Rank {}: ", processes_.rank()) : "", text);
  history_.note(sums.step, RunEvent::kSkipped, text, found.fields());
}

void StepGuard::judge_spike(const StepSums& sums, int64_t done) {
  const double loss = sums[LossBuffer::kLoss] / sums[LossBuffer::kTokens];
  if (train_.on_spike == OnSpike::kOff) return;
  if (train_.on_spike == OnSpike::kSkip) {
    if (sums[LossBuffer::kSpike] != 0) report_spike(sums.step, {loss, sums[LossBuffer::kSpike], 0}, done);
    return;
  }
  const auto spike = spikes_.judge(loss);
  if (!spike) return;
  report_spike(sums.step, *spike, done);
  if (train_.on_spike == OnSpike::kRollback) spike_ = sums.step;
}

void StepGuard::report_spike(int64_t step, const SpikeFilter::Spike& spike, int64_t done) {
  const bool follows = step == last_spike_ + 1;
  last_spike_ = step;
  if (follows || !run_ || reported_spikes_ >= kMostSpikes) return;
  ++reported_spikes_;
  std::vector<WorstRow> own;
  run_->optimizer.refresh_weights();
  try {
    own = worst_rows(*run_, step);
  } catch (const std::exception& error) {
    log::warn("The rows of step {} could not be looked into: {}", step, error.what());
  }
  const auto rows = worst_of_all(own, processes_);  // the spike may be in those of any process
  std::string text = fmt::format(
      "Step {}: a loss of {:.4g}, above the limit of {:.4g} that those before it give "
      "(train.spike_deviations "
      "{:g}).{}",
      step, spike.loss, spike.limit, train_.spike_deviations,
      train_.on_spike == OnSpike::kSkip ? " Its update was left out." : "");
  if (!rows.empty())
    text += fmt::format(" Its worst rows: {}.{}", fmt::join(rows, "; "), weights_note(step, done));
  if (reported_spikes_ == kMostSpikes) text += " More of them are not reported.";
  if (processes_.main()) log::warn("{}", text);
  nlohmann::json more{{"loss", spike.loss}, {"limit", spike.limit}, {"rows", rows}};
  more["action"] = name_of(train_.on_spike);
  history_.note(step, RunEvent::kSpike, text, more);
}

void StepGuard::reset(const Safetensors& optimizer) {
  divergence_ = make_divergence();
  spike_ = last_spike_ = skipped_in_a_row_ = searched_in_a_row_ = 0;
  held_back_.clear();
  const auto found = optimizer.tensors.find(kState);
  const bool known = found != optimizer.tensors.end() && found->second.numel() == SpikeFilter::kWindow + 2;
  const at::Tensor state = known ? found->second : SpikeFilter(train_.spike_deviations).state();
  spikes_.load(state);
  if (device_spikes_) device_spikes_->load(state);
}

NamedTensors StepGuard::state() const {
  if (train_.on_spike == OnSpike::kOff) return {};
  return {{kState, device_spikes_ ? device_spikes_->state() : spikes_.state()}};
}

}  // namespace tightloop
