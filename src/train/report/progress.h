#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "data/prefetcher.h"
#include "train/engine/loss_buffer.h"
#include "train/optim/layer_norms.h"
#include "train/report/metric_table.h"
#include "train/report/metrics.h"

namespace tightloop {

/// What the host knew when it had started a step.
struct StepStart {
  int64_t step = 0, tokens = 0;
  double lr = 0, epoch = 0;
  double waited = 0, seconds = 0;  // for data; since the step before
  int64_t empty_batches = 0;       // micro-batches with nothing to learn
  QueueDepth queue{};              // micro-batches that were ready, summed over those taken
  bool by_layer = false;           // norms by layer were made
};

/// Puts together what the host knew when steps started and what the device tells of them later, in step
/// order, into the lines of the log. Sums are in double and in that order, so that they do not depend on how
/// often the device was asked.
class Progress {
 public:
  Progress(std::vector<std::string> sources, int64_t experts, int64_t total_steps, LayerNames layers = {})
      : sources_(std::move(sources)),
        experts_(experts),
        total_steps_(total_steps),
        layers_(std::move(layers)) {}

  void started(const StepStart& start) { ahead_.push_back({start, false}); }
  /// The last step started ends a line, unless its sums have arrived already.
  void end_line() {
    if (!ahead_.empty()) ahead_.back().ends_line = true;
  }
  /// Sums of the next step, which has been started. Averages leave a loss out that is not finite. Gives the
  /// line that the step ends.
  std::optional<IntervalReport> arrived(const StepSums& sums);

  /// After the last step started: the mean loss of the steps that have arrived since the last line (or of
  /// that line), for people to look at.
  IntervalReport running() const;

  /// What is summed over more than a line, for a checkpoint; a run that goes on from there tells the same
  /// numbers. One that is given null, by an older checkpoint, leaves out what it cannot know.
  nlohmann::json totals() const;
  void go_on_from(const nlohmann::json& totals);

  /// Mean loss over all steps so far, by token.
  double mean_loss() const { return loss_ / tokens_; }
  /// Whether any line has been put together.
  bool any_line() const { return shown_.step > 0; }
  /// Of the steps in the line that is being put together.
  int64_t line_steps() const { return line_.steps; }
  /// Supervised tokens so far.
  double tokens() const { return tokens_; }

 private:
  struct Ahead {
    StepStart start;
    bool ends_line;
  };
  /// A pass over the data.
  struct Epoch {
    double loss = 0, tokens = 0, seconds = 0;
    bool whole = true;  // its steps are known from the first on
  };
  struct Line {
    int64_t steps = 0, tokens = 0;
    std::vector<double> values = std::vector<double>(LossBuffer::kColumns);
    double checked = 0;  // supervised tokens of the steps whose correct ones were counted
    double seconds = 0, waited = 0;
    QueueDepth queue;
    std::optional<Epoch> ended;  // the last one that did
    std::vector<double> grad_norms, update_ratios;
    std::vector<double> source_loss, source_tokens, source_correct, expert_loads;
  };
  IntervalReport report(const StepStart& start, const StepSums& last) const;
  /// Sets a metric that comes from the device, where the line has it.
  void reduce(const Metric& metric, const StepSums& last, IntervalReport& report) const;
  void set_by_layer(const char* blocks, const char* others, const std::vector<double>& norms,
                    IntervalReport& report) const;

  std::vector<std::string> sources_;
  int64_t experts_, total_steps_;
  const LayerNames layers_;
  std::deque<Ahead> ahead_;
  Line line_;
  IntervalReport shown_;  // the last line
  double loss_ = 0, tokens_ = 0;
  bool whole_ = true;  // those are of the whole run
  int64_t empty_batches_ = 0;
  Epoch epoch_;
  double passes_ = 0;  // over the data, after the last step that has arrived; NaN: not known
  std::vector<int64_t> steps_with_ = std::vector<int64_t>(LossBuffer::kColumns);  // columns that are not 0
};

}  // namespace tightloop
