#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "model/language_model.h"
#include "tokenizer/tokenizer.h"
#include "train/interval.h"
#include "train/metrics.h"
#include "train/micro_batches.h"
#include "train/optimizer.h"
#include "train/recipe.h"
#include "train/run_folder.h"

namespace tightloop {

struct TrainResult {
  int64_t step = 0;  // the last one done
  bool interrupted = false;
  std::optional<double> held_out_loss;
  std::vector<double> losses;  // one for each logging interval
  double seconds = 0;
};

struct StepTimes {
  std::vector<double> milliseconds;  // of each step
  double tokens_per_second = 0, data_wait_share = 0;
};

/// One run, from its recipe to its last checkpoint. It starts from fresh weights, or from those of
/// train.init_from.
///
///     Trainer trainer(recipe, RunFolder::create("runs/a", false));
///     trainer.run();
class Trainer {
 public:
  /// Prepares everything: device, tokenizer (read, or trained and saved in the run), data, model, optimizer.
  Trainer(const Recipe& recipe, const RunFolder& run);

  /// Goes on from the newest checkpoint of the run.
  void resume();
  /// Trains until the last step, train.stop_at or Ctrl-C, and saves.
  TrainResult run();

  /// Times `steps` training steps after a few to warm up; nothing is evaluated or saved.
  StepTimes time_steps(int64_t steps);

  LanguageModel& model() { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const Recipe& recipe() const { return recipe_; }
  /// What checkpoints say about this run: stage, parent, adapters, ...
  const nlohmann::json& metadata() const { return metadata_; }

 private:
  void load_start();
  void announce(int64_t row_length) const;
  LoaderOptions loading() const;
  Interval interval(const Loader& loader) const;
  void step(int64_t step, Loader& loader, Interval& interval);
  /// Takes one micro-batch, refuses ids that the model does not know and notices one with nothing to learn.
  MicroBatch take(Loader& loader, Interval& interval);
  void report(int64_t step, const Interval& interval, double waited, Metrics& metrics);
  void refuse_divergence(int64_t step, const Interval& interval, double loss) const;
  void refresh_adapters();  // for what is asked of the model between steps
  double evaluate();
  void save(int64_t step);

  Recipe recipe_;
  RunFolder run_;
  Device& device_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Dataset dataset_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<Adapters> adapters_;  // null without lora.rank
  std::unique_ptr<Optimizer> optimizer_;
  nlohmann::json metadata_ = nlohmann::json::object();
  int64_t done_ = 0;  // steps behind us
  int64_t supervised_ = 0, empty_batches_ = 0;
  at::Tensor first_loss_;  // mean of the first step, on the device; what divergence is measured by
  double least_loss_ = INFINITY;
};

/// What train.precision means on a device.
at::ScalarType compute_dtype(const std::string& precision, const Device& device);
/// Sets torch's thread pool (train.threads; 0: all cores).
void use_threads(int64_t threads);

}  // namespace tightloop
