#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/language_model.h"
#include "tokenizer/tokenizer.h"
#include "train/run/checkpoint.h"
#include "train/run/run_tokenizer.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// A model on disk: a run, one checkpoint of a run (its folder, or "runs/a@best", "runs/a@300": see
/// checkpoint_name.h), a Hugging Face folder or a GGUF file. Opening it reads the settings
/// and verifies a checkpoint's weights; they are copied straight into the model that is to have them.
class SavedModel {
 public:
  /// A usage error when it is none of these. `step` chooses a checkpoint of a run (default: the
  /// newest that is whole; others are passed over with a warning).
  explicit SavedModel(const std::filesystem::path& path, std::optional<int64_t> step = {});

  /// What it was opened by; of a name such as "runs/a@best" the folder that it stood for.
  const std::filesystem::path& path() const { return path_; }
  /// As the run had it, sizes worked out. Of an imported model: the model, the tokenizer's path and the
  /// form of chat that its tokens show; the rest stands at its defaults.
  const Recipe& recipe() const { return recipe_; }
  /// A run or a checkpoint of one, not a Hugging Face folder or a GGUF file.
  bool is_run() const { return !checkpoints_.empty(); }
  /// 0 of an imported model.
  int64_t step() const { return checkpoint_.step; }
  /// What a checkpoint says about itself: stage, parent, the dtype that the weights came in, ...
  const nlohmann::json& metadata() const { return checkpoint_.metadata; }
  const std::filesystem::path& tokenizer_path() const { return tokenizer_path_; }
  /// Null where an imported model has none.
  std::unique_ptr<Tokenizer> tokenizer() const;
  /// Copies the weights into a model of the same sizes, adapters merged. What does not fit is a checkpoint
  /// error that names the tensor and both shapes.
  void load_weights(LanguageModel& model) const;
  /// The same for a run of any family.
  void load_weights(Parameters& parameters) const;
  /// What its optimizer keeps. A usage error where it is not a run.
  Safetensors optimizer_state() const;
  /// Of a run that translates.
  PairTokenizers pair_tokenizers() const;

 private:
  void open_run(const std::filesystem::path& run, std::optional<int64_t> step);
  void open_hugging_face();

  std::filesystem::path path_, checkpoints_, tokenizer_path_;  // checkpoints_ is empty for imported ones
  Recipe recipe_;
  Checkpoint checkpoint_;  // its weights are mapped, not read
};

/// What a run's checkpoints take over from the model that it started from: `dtype`, `generation` (its
/// generation_config.json), `base_model` (the Hugging Face folder's name) and `end_of_turn`.
void inherit_metadata(const nlohmann::json& parent, nlohmann::json& metadata);
/// The generation_config.json of the Hugging Face folder that a model, or the one it started from, was read
/// from; null: there was none.
nlohmann::json imported_generation(const nlohmann::json& metadata);
/// The tokens that it stops at.
std::vector<int32_t> imported_stop_tokens(const nlohmann::json& metadata);

}  // namespace tightloop
