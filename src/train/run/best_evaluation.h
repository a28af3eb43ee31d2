#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/settings/recipe.h"
#include "train/train_config.h"

namespace tightloop {

/// What was measured on held-out data, by the names that it is logged under; the loss first.
using Measured = std::vector<std::pair<std::string, double>>;

/// The metric that train.best_by names, such as "eval/loss".
std::string metric_of(BestBy by);
std::optional<double> value_of(const Measured& measured, const std::string& metric);

/// A usage error where train.best_by names what this run does not measure.
void require_best_by(const Recipe& recipe);

/// Why what is measured from now on cannot be compared with what a checkpoint knows of before; empty where it
/// can. `was` and `is` are the metadata and the settings then and now.
std::string measured_otherwise(const nlohmann::json& was, const nlohmann::json& is, const Recipe& before,
                               const Recipe& now);

/// The step that a checkpoint's metadata says is the best: of the evaluations that count, or, until there is
/// one, of those before them ("former_best", see RunHistory). 0: none.
int64_t best_step_in(const nlohmann::json& metadata);

/// The best evaluation of a run so far, and how many came after it.
class BestEvaluation {
 public:
  explicit BestEvaluation(BestBy by) : by_(by) {}

  /// Goes on with what a checkpoint's metadata has ("best", "worse"). False where that is the best by
  /// something else: then it is forgotten.
  bool go_on_from(const nlohmann::json& metadata);
  /// One that lacks the metric, because measuring it failed, changes nothing.
  void add(int64_t step, const Measured& measured);
  /// Writes it into metadata: {"best": {"step", "by", "value", "loss"}, "worse"}.
  void keep_in(nlohmann::json& metadata) const;

  /// 0: none yet.
  int64_t step() const { return step_; }
  /// Evaluations since then.
  int64_t worse() const { return worse_; }
  /// "the held-out loss has not fallen for 3 evaluations; it was best at step 40"
  std::string text() const;

 private:
  bool is_better(double value) const;

  BestBy by_;
  int64_t step_ = 0, worse_ = 0;
  double value_ = 0;
  std::optional<double> loss_;
};

}  // namespace tightloop
