#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "train/engine/loss_buffer.h"
#include "train/train_config.h"

namespace tightloop {

/// Judges the losses of a run as they are read from the device, so that a run that has diverged ends with a
/// sentence instead of going on, or ending, as if all were well. Every rule is one that no healthy run meets:
///
/// - a loss that is not finite, on held-out data or in a step whose update was made (a step that was
///   skipped has changed nothing, and counts as skipped);
/// - the first loss of a new run that is not finite, or the first kNotFinite of one that goes on;
/// - over kWindow steps a mean loss of twice ln V (uniform prediction) and twice what it was at first or
/// best;
/// - train.max_skips updates in a row skipped because gradients were not finite: weights stay as they are
///   while the data changes, so it is the weights. Those of fp16 count only at a loss scale of 1 or less:
///   finding the scale skips updates too, 16 of them from 65536 down to 1. Or skipped as spikes;
/// - after the warm-up, kStuck steps of a loss above both ln V and the first loss by a twentieth, or of
///   exactly ln V (all logits are equal). A rate that is tiny or data that is random stays at the first loss
///   and near ln V, not a twentieth above; random ids (data.source random) are left alone.
class DivergenceGuard {
 public:
  static constexpr size_t kWindow = 10;
  static constexpr int64_t kNotFinite = 3, kStuck = 100;
  /// A sentence about the last checkpoint whose weights gave a good step before `step`, and how to go on from
  /// it.
  using WayBack = std::function<std::string(int64_t step)>;

  DivergenceGuard(const TrainConfig& train, int64_t vocab_size, bool random_data, WayBack way_back = {});

  /// The next step. Error(kFailure) where a rule is met.
  void step(const StepSums& sums);
  /// A held-out loss after a step. Error(kFailure) where it is not finite.
  void evaluated(int64_t step, double loss) const;
  /// Before the weights are saved: what step() says of a window that is not full yet, and Error(kFailure)
  /// after kNotFinite losses in a row that were not finite: on other data each time, so it is the weights.
  void before_save() const;
  /// At the end of the run: what can be said of a short one, and a warning where nothing was learned.
  void finish() const;
  /// Whether nothing speaks against the weights that the last step computed with. While it is in doubt no
  /// older checkpoint is to be removed.
  bool healthy() const;

 private:
  struct Judged {
    int64_t step = 0;
    double loss = 0, tokens = 0;
  };
  double window_mean() const;
  void refuse_explosion() const;
  void refuse_skips(int64_t step, bool spike) const;
  /// The first step of the window, up to `step`, whose loss was above those before.
  int64_t turned_by(int64_t step) const;
  /// What to do about what was bad at a step.
  std::string advice(int64_t first_bad) const;

  const TrainConfig& train_;
  const double uniform_;  // ln V
  const bool random_data_;
  const WayBack way_back_;
  std::deque<Judged> window_;
  double first_ = NAN, least_ = INFINITY;  // the first step's mean loss, the least of full windows
  int64_t seen_ = 0;                       // steps
  int64_t steps_ = 0, skipped_ = 0;        // with supervised tokens, since the start or resume
  int64_t first_skipped_ = 0;              // of those in a row
  int64_t skipped_in_a_row_ = 0, not_finite_in_a_row_ = 0, worse_in_a_row_ = 0, uniform_in_a_row_ = 0;
};

}  // namespace tightloop
