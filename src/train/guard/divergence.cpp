#include "train/guard/divergence.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "dist/fault.h"

namespace tightloop {

namespace {

/// Losses are added up over the processes, so that all of them find the same.
template <class... Args>
SharedError failure(fmt::format_string<Args...> format, Args&&... args) {
  return {ExitCode::kFailure, fmt::format(format, std::forward<Args>(args)...)};
}

/// A rate to try where this one was too high.
std::string lower_rate(const TrainConfig& train) {
  const bool muon = train.optimizer == OptimizerKind::kMuon;
  constexpr double kUsual = 1e-3;  // for AdamW; where the rate is far off, a third of it is no help
  const double lower = muon ? std::min(train.lr_scale / 3, 1.0) : std::min(train.lr / 3, kUsual);
  return fmt::format(
      "A learning rate that is too high is the usual cause: try --train.{} {:.2g}, or a longer "
      "--train.warmup_steps.",
      muon ? "lr_scale" : "lr", lower);
}

}  // namespace

DivergenceGuard::DivergenceGuard(const TrainConfig& train, int64_t vocab_size, bool random_data,
                                 WayBack way_back)
    : train_(train),
      uniform_(std::log(static_cast<double>(vocab_size))),
      random_data_(random_data),
      way_back_(std::move(way_back)) {}

// The window holds the steps before it is noticed, too: weights of a step that came after the turn are no
// good ones to go back to, and those of one before need not be given up.
int64_t DivergenceGuard::turned_by(int64_t step) const {
  constexpr double kTurned = 1.2;
  const double start = std::min(first_, least_);
  for (const Judged& judged : window_)
    if (judged.step < step && judged.loss > kTurned * start * judged.tokens) return judged.step;
  return step;
}

std::string DivergenceGuard::advice(int64_t first_bad) const {
  first_bad = turned_by(first_bad);
  return fmt::format("{} Nothing was saved after this. {}", lower_rate(train_),
                     way_back_ ? way_back_(first_bad) : "Checkpoints on disk are as they were.");
}

void DivergenceGuard::refuse_skips(int64_t step, bool spike) const {
  if (train_.max_skips == 0 || skipped_in_a_row_ < train_.max_skips) return;
  if (spike)
    throw failure(
        "the last {} updates, up to step {}, were skipped (train.max_skips): losses stay more than "
        "train.spike_deviations = {:g} above the median of those before, so it is no single batch. {}",
        skipped_in_a_row_, step, train_.spike_deviations, advice(first_skipped_));
  throw failure(
      "the last {} updates, up to step {}, were skipped (train.max_skips): gradients are not finite any "
      "more. "
      "{}",
      skipped_in_a_row_, step, advice(first_skipped_));
}

void DivergenceGuard::step(const StepSums& sums) {
  constexpr double kAbove = 1.05, kExact = 1e-4;
  const double tokens = sums[LossBuffer::kTokens];
  const bool new_run = sums.step == ++seen_;  // all of its steps were
  if (tokens == 0) return;                    // nothing to learn, nothing to judge
  const double loss = sums[LossBuffer::kLoss] / tokens;
  ++steps_;
  const bool skipped = sums[LossBuffer::kSkipped] != 0, finite = std::isfinite(loss);
  if (std::isnan(first_)) {
    if (finite) first_ = loss;
    // Of a run that goes on, one bad batch is no reason to doubt weights that were good.
    if (!finite && (steps_ == (new_run ? 1 : kNotFinite)))
      throw failure(
          "the loss was {} {}. The weights that the run {} from hold values that are not finite, or so large "
          "that sums overflow.",
          loss, new_run ? "before the first update" : fmt::format("in each of the first {} steps", steps_),
          new_run ? "started" : "went on");
  }
  const bool spike = sums[LossBuffer::kSpike] != 0;
  // A loss that is not finite is no matter of fp16's loss scale, which multiplies it later.
  const bool searching = finite && !spike && sums[LossBuffer::kLossScale] > 1;
  if (!finite && !skipped)
    throw failure("the loss {} {} at step {}. {}",
                  std::isnan(first_) ? "is" : fmt::format("rose from {:.4g} to", std::min(first_, least_)),
                  std::fabs(loss), sums.step, advice(sums.step));
  not_finite_in_a_row_ = finite ? 0 : not_finite_in_a_row_ + 1;
  skipped_ += skipped;
  skipped_in_a_row_ = skipped ? skipped_in_a_row_ + !searching : 0;
  if (skipped_in_a_row_ == 1) first_skipped_ = sums.step;
  if (skipped) refuse_skips(sums.step, spike);
  if (!finite || spike) return;  // a spike whose update was left out says nothing about the weights
  window_.push_back({sums.step, sums[LossBuffer::kLoss], tokens});
  if (window_.size() > kWindow) window_.pop_front();
  const bool warm = sums.step > train_.warmup_steps && !random_data_;
  worse_in_a_row_ = warm && loss > kAbove * std::max(uniform_, first_) ? worse_in_a_row_ + 1 : 0;
  uniform_in_a_row_ = warm && std::fabs(loss - uniform_) < kExact * uniform_ ? uniform_in_a_row_ + 1 : 0;
  if (worse_in_a_row_ >= kStuck) {
    throw failure(
        "the loss has been above {:.4g} for {} steps, up to step {}: more than at first ({:.4g}) and more "
        "than uniform prediction gives (ln V = {:.4g}). {}",
        kAbove * std::max(uniform_, first_), worse_in_a_row_, sums.step, first_, uniform_,
        advice(sums.step - worse_in_a_row_ + 1));
  }
  if (uniform_in_a_row_ >= kStuck) {
    throw failure(
        "the loss has been exactly that of uniform prediction (ln V = {:.4g}) for {} steps, up to step {}: "
        "all logits are equal, and training does not change it. {} A learning rate of nearly 0 does the "
        "same.",
        uniform_, uniform_in_a_row_, sums.step, advice(sums.step - uniform_in_a_row_ + 1));
  }
  if (window_.size() < kWindow) return;
  refuse_explosion();
  least_ = std::min(least_, window_mean());
}

double DivergenceGuard::window_mean() const {
  double loss = 0, tokens = 0;
  for (const Judged& judged : window_) loss += judged.loss, tokens += judged.tokens;
  return loss / tokens;
}

void DivergenceGuard::refuse_explosion() const {
  const double loss = window_mean(), start = std::min(first_, least_);
  if (loss < 2 * uniform_ || loss < 2 * start) return;
  throw failure(
      "the loss rose from {:.4g} to {:.4g} between step {} and step {} (uniform prediction gives ln V = "
      "{:.4g}). {}",
      start, loss, window_.front().step, window_.back().step, uniform_, advice(window_.back().step));
}

void DivergenceGuard::evaluated(int64_t step, double loss) const {
  if (std::isfinite(loss)) return;
  throw failure("the held-out loss after step {} is {}: the weights have diverged. {} {}", step,
                std::isnan(loss) ? "not a number" : "infinite", lower_rate(train_),
                way_back_ ? way_back_(turned_by(step)) : "Checkpoints on disk are as they were.");
}

void DivergenceGuard::before_save() const {
  if (not_finite_in_a_row_ >= kNotFinite)
    throw failure("the losses of the last {} steps were not finite, so this one is not saved. {}",
                  not_finite_in_a_row_, advice(first_skipped_));
  if (!window_.empty()) refuse_explosion();
}

void DivergenceGuard::finish() const {
  constexpr int64_t kFew = 3, kEnough = 50;
  if (skipped_in_a_row_ >= kFew && 2 * skipped_in_a_row_ > steps_) {
    throw failure("the last {} of {} updates were skipped: gradients are not finite any more. {}",
                  skipped_in_a_row_, steps_, advice(first_skipped_));
  }
  if (2 * skipped_ > steps_)
    log::warn("{} of {} updates were skipped because gradients were not finite.", skipped_, steps_);
  if (!random_data_ && steps_ >= kEnough && least_ >= uniform_)
    log::warn(
        "Nothing was learned: the loss never fell below that of uniform prediction (ln V = {:.4g}); its best "
        "mean over {} steps was {:.4g}. The learning rate may be far too low or too high.",
        uniform_, kWindow, least_);
}

bool DivergenceGuard::healthy() const {
  if (window_.empty()) return skipped_in_a_row_ == 0;
  const double loss = window_.back().loss / window_.back().tokens, start = std::min(first_, least_);
  const bool fallen_back = start < 0.9 * uniform_ && loss > 0.999 * uniform_;
  return skipped_in_a_row_ == 0 && !fallen_back && (loss < 2 * uniform_ || loss < 2 * start);
}

}  // namespace tightloop
