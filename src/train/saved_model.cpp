#include "train/saved_model.h"

#include "core/error.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"

namespace tightloop {

namespace fs = std::filesystem;

SavedModel::SavedModel(const fs::path& path, std::optional<int64_t> step) : path_(path) {
  // "runs/a/checkpoints/step-1/" ends in an empty name; parents are counted without it.
  const fs::path folder = path.has_filename() ? path : path.parent_path();
  if (fs::exists(folder / "config.yaml")) {
    open_run(folder, step);
  } else if (fs::exists(folder / "state.json")) {
    const fs::path run = fs::absolute(folder).parent_path().parent_path();
    const auto number = checkpoint_step(folder);
    if (!number || !fs::exists(run / "config.yaml"))
      throw usage_error("the checkpoint '{}' is not in a run's folder, whose config.yaml has its sizes.",
                        path.string());
    open_run(run, number);
  } else {
    throw usage_error(
        "'{}' is no model: a run has a config.yaml, a checkpoint a state.json, a Hugging Face folder a "
        "config.json.",
        path.string());
  }
}

void SavedModel::open_run(const fs::path& root, std::optional<int64_t> step) {
  const auto run = RunFolder::open(root);
  checkpoints_ = run.checkpoints();
  tokenizer_path_ = run.tokenizer();
  recipe_.bind().load(run.config());
  const auto about = describe_checkpoint(checkpoints_, step);
  step_ = about.step;
  metadata_ = about.metadata;
}

std::unique_ptr<Tokenizer> SavedModel::tokenizer() const {
  return tokenizer_path_.empty() ? nullptr : load_tokenizer(tokenizer_path_);
}

void SavedModel::load_weights(LanguageModel& model) const {
  const auto checkpoint = load_checkpoint(checkpoints_, step_, /*weights_only=*/true);
  tightloop::load_weights(model.parameters(), checkpoint.weights, "model.safetensors");
}

}  // namespace tightloop
