#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "data/batch/pairs.h"
#include "data/dataset.h"
#include "model/families/seq2seq/seq2seq.h"
#include "train/engine/task.h"
#include "train/run/run_folder.h"
#include "train/run/run_tokenizer.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// An encoder-decoder on pairs of sentences.
class TranslationTask : public Task {
 public:
  /// Prepares tokenizers (read, or trained and saved in the run), data and model; fills in what the recipe
  /// leaves open. `metadata` is told what checkpoints should say. `from`: see make_task().
  TranslationTask(Recipe& recipe, const RunFolder& run, nlohmann::json& metadata, const Checkpoint* from);

  const ModelConfig& config() const override { return model_->config(); }
  Parameters& trained() override { return model_->parameters(); }
  void move_to(at::Device, at::ScalarType) override {}

  const std::vector<std::string>& sources() const override { return dataset_.sources; }
  std::string description() const override;
  int64_t positions() const override { return recipe_.data.batch_tokens; }

  int64_t samples() const override { return 1; }
  uint64_t epoch_samples() override;
  void open(int64_t first_micro_batch, int64_t consumed, int rank, int world) override;
  Staged next(bool pin) override;
  Staged again(int64_t micro_batch) override;
  std::vector<std::string> origins(int64_t micro_batch) const override;
  double waited() const override { return loader_ ? loader_->wait_seconds() : 0; }
  QueueDepth depth() const override { return loader_ ? loader_->depth() : QueueDepth(); }

  BatchLoss loss(const std::vector<at::Tensor>& parts, const at::Tensor& scale, bool metrics) override;
  std::string why_no_evaluation() const override;
  /// The loss without smoothing, over held-out pairs.
  HeldOutSums evaluate(int rank, int world) override;
  double flops_per_token() const override;
  std::optional<HeldOutPairs> held_out_pairs() override;

 private:
  Staged staged(const PairBatch& batch, bool pin) const;
  PairOptions loading() const;
  PairOptions held_out_loading() const;
  void load_random(Recipe& recipe);

  const Recipe& recipe_;
  PairTokenizers tokenizers_;
  Dataset dataset_;
  std::unique_ptr<Seq2Seq> model_;
  std::unique_ptr<PairLoader> loader_;
};

}  // namespace tightloop
