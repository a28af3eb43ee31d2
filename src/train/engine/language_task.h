#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/batch/loader.h"
#include "data/dataset.h"
#include "model/language_model.h"
#include "model/parts/lora.h"
#include "tokenizer/tokenizer.h"
#include "train/engine/task.h"
#include "train/run/run_folder.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// A language model on rows of text: pretraining, and fine-tuning by masks or adapters.
class LanguageTask : public Task {
 public:
  /// Prepares tokenizer (read, or trained and saved in the run), data and model; fills in what the recipe
  /// leaves open. `metadata` is told what checkpoints should say: stage, parent, adapters. `from`: see
  /// make_task().
  LanguageTask(Recipe& recipe, const RunFolder& run, nlohmann::json& metadata, const Checkpoint* from);

  const ModelConfig& config() const override { return model_->config(); }
  Parameters& trained() override { return adapters_ ? adapters_->parameters() : model_->parameters(); }
  void move_to(at::Device device, at::ScalarType dtype) override;
  NamedTensors frozen() const override { return adapters_ ? adapters_->frozen() : NamedTensors(); }

  const std::vector<std::string>& sources() const override { return dataset_.sources; }
  std::string description() const override;
  int64_t positions() const override;

  int64_t samples() const override { return recipe_.train.micro_batch; }
  uint64_t epoch_samples() override;
  void open(int64_t first_micro_batch, int64_t consumed, int rank, int world) override;
  Staged next(bool pin) override;
  Staged again(int64_t micro_batch) override;
  std::vector<std::string> origins(int64_t micro_batch) const override;
  double waited() const override { return loader_ ? loader_->wait_seconds() : 0; }
  QueueDepth depth() const override { return loader_ ? loader_->depth() : QueueDepth(); }

  BatchLoss loss(const std::vector<at::Tensor>& parts, const at::Tensor& scale, bool metrics) override;
  std::string why_no_evaluation() const override;
  HeldOutSums evaluate(int rank, int world) override;
  void refresh_weights() override;
  double flops_per_token() const override;

  LanguageModel& language_model() override { return *model_; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  const Documents* held_out_documents() const override { return tokenizer_ ? dataset_.val.get() : nullptr; }

 private:
  Staged staged(const Batch& batch, bool pin) const;
  void load_random(Recipe& recipe);
  LoaderOptions loading() const;
  LoaderOptions held_out_loading() const;
  void load_start(nlohmann::json& metadata, const Checkpoint* from);

  const Recipe& recipe_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Dataset dataset_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<Adapters> adapters_;   // null without lora.rank
  std::shared_ptr<const RowPlan> plan_;  // null before epoch_samples() has counted
  std::unique_ptr<Loader> loader_;
};

}  // namespace tightloop
