#include "train/run/best_evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace tightloop {

namespace {

using nlohmann::json;

/// Sizes and, where they can be compared, hashes of the files that are evaluated on; of all files where these
/// are held out of them, or where it is not known which are (`parts`).
json evaluated_files(const json& data, bool hashes, bool parts) {
  json all = json::array(), apart = json::array();
  for (const json& file : data.at("files")) {
    all.push_back({file.at("bytes"), hashes ? file.at("xxh3") : json()});
    if (parts && file.value("part", "").starts_with("val")) apart.push_back(all.back());
  }
  return apart.empty() ? all : apart;
}

/// Older versions did not say what a file is read for.
bool says_parts(const json& data) {
  return std::ranges::all_of(data.at("files"), [](const json& file) { return file.contains("part"); });
}

bool same_held_out_data(const json& was, const json& is) {
  constexpr const char *kCounts = "documents", *kFiles = "data";
  if (was.contains(kCounts) && is.contains(kCounts) && was[kCounts].at("val") != is[kCounts].at("val"))
    return false;
  if (!was.contains(kFiles) || !is.contains(kFiles)) return true;
  const bool hashes = was[kFiles].at("per_file") == is[kFiles].at("per_file");
  const bool parts = says_parts(was[kFiles]) && says_parts(is[kFiles]);
  return evaluated_files(was[kFiles], hashes, parts) == evaluated_files(is[kFiles], hashes, parts);
}

/// 0: all that are held out.
int64_t evaluated_rows(const TrainConfig& train) { return train.eval_batches * train.micro_batch; }

}  // namespace

std::string measured_otherwise(const json& was, const json& is, const Recipe& before, const Recipe& now) {
  if (!same_held_out_data(was, is)) return "The held-out data is not what it was";
  const TrainConfig &old = before.train, &train = now.train;
  if (!now.model.translates()) {
    if (evaluated_rows(old) == evaluated_rows(train)) return {};
    return fmt::format(
        "Evaluations were of {} batches of {} rows, are of {} of {} (train.eval_batches, train.micro_batch)",
        old.eval_batches, old.micro_batch, train.eval_batches, train.micro_batch);
  }
  const bool bleu = train.best_by == BestBy::kBleu;
  if ((bleu || train.best_by == BestBy::kChrf) && old.eval_translations != train.eval_translations)
    return fmt::format("train.eval_translations was {}, is {}", old.eval_translations,
                       train.eval_translations);
  if (bleu && old.bleu_tokenize != train.bleu_tokenize)
    return fmt::format("train.bleu_tokenize was {}, is {}", name_of(old.bleu_tokenize),
                       name_of(train.bleu_tokenize));
  return {};
}

int64_t best_step_in(const json& metadata) {
  for (const char* key : {"best", "former_best"})
    if (metadata.contains(key)) return metadata[key].value("step", int64_t{0});
  return 0;
}

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
