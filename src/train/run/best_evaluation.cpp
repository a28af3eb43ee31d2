#include "train/run/best_evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace tightloop {

std::string metric_of(BestBy by) { return fmt::format("eval/{}", name_of(by)); }

std::optional<double> value_of(const Measured& measured, const std::string& metric) {
  const auto found = std::ranges::find(measured, metric, &Measured::value_type::first);
  if (found == measured.end()) return {};
  return found->second;
}

void require_best_by(const Recipe& recipe) {
  const auto& train = recipe.train;
  if (!is_one_of(train.best_by, {BestBy::kBleu, BestBy::kChrf})) return;
  if (!recipe.model.translates())
    throw usage_error("train.best_by is {}, which is for seq2seq; {} has loss and accuracy.",
                      name_of(train.best_by), recipe.model.family);
  if (train.eval_translations == 0)
    throw usage_error(
        "train.best_by is {}, and nothing is translated in evaluations: say how many held-out pairs, such as "
        "--train.eval_translations 200.",
        name_of(train.best_by));
}

bool BestEvaluation::is_better(double value) const {
  if (!std::isfinite(value)) return false;
  return step_ == 0 || (by_ == BestBy::kLoss ? value < value_ : value > value_);
}

bool BestEvaluation::go_on_from(const nlohmann::json& metadata) {
  if (!metadata.contains("best")) return true;
  const auto& best = metadata["best"];
  // Old checkpoints have the loss alone.
  const std::string by = best.value("by", std::string(name_of(BestBy::kLoss)));
  if (by != name_of(by_)) return false;
  step_ = best.at("step").get<int64_t>();
  if (best.contains("loss")) loss_ = best["loss"].get<double>();
  value_ = best.contains("value") ? best["value"].get<double>() : loss_.value_or(INFINITY);
  worse_ = metadata.value("worse", int64_t{0});
  return true;
}

void BestEvaluation::add(int64_t step, const Measured& measured) {
  const auto value = value_of(measured, metric_of(by_));
  if (!value) return;
  if (!is_better(*value)) return static_cast<void>(++worse_);
  step_ = step, value_ = *value, worse_ = 0;
  loss_ = value_of(measured, metric_of(BestBy::kLoss));
}

void BestEvaluation::keep_in(nlohmann::json& metadata) const {
  metadata["worse"] = worse_;
  if (step_ == 0) return;
  metadata["best"] = {{"step", step_}, {"by", name_of(by_)}, {"value", value_}};
  if (loss_) metadata["best"]["loss"] = *loss_;
}

std::string BestEvaluation::text() const {
  return fmt::format("{} for {} evaluations; it was best at step {}",
                     by_ == BestBy::kLoss ? "the held-out loss has not fallen"
                                          : fmt::format("{} has not risen", metric_of(by_)),
                     worse_, step_);
}

}  // namespace tightloop
