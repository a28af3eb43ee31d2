#include "train/run/saved_model.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "core/files.h"
#include "data/store/fingerprint.h"
#include "model/files/gguf.h"
#include "model/files/huggingface.h"
#include "model/files/huggingface_generation.h"
#include "tokenizer/gguf_tokenizer.h"
#include "train/optim/optimizer.h"
#include "train/run/checkpoint_name.h"
#include "train/run/run_settings.h"

namespace tightloop {

namespace {

constexpr const char* kGeneration = "generation";

/// A GGUF file's settings and what it says about itself. False: it has no tokenizer.
bool read_gguf(const fs::path& path, Recipe& recipe, nlohmann::json& metadata) {
  if (!is_gguf_name(path))
    throw usage_error(
        "'{}' is a file, and of files only GGUF is read as a model, which ends in .gguf. Of a Hugging Face "
        "model name the folder.",
        path.string());
  const GgufFile file(path);
  const GgufModel model = read_gguf_model(file);
  recipe.model = model.config;
  const GgufSpecialTokens special = read_gguf_special_tokens(file);
  nlohmann::json generation = nlohmann::json::object();
  std::vector<int64_t> stops;
  for (const int64_t id : {special.end, special.end_of_turn, special.end_of_message})
    if (id >= 0 && std::ranges::find(stops, id) == stops.end()) stops.push_back(id);
  if (!stops.empty()) generation["eos_token_id"] = stops;
  if (special.begin >= 0) generation["bos_token_id"] = special.begin;
  if (special.pad >= 0) generation["pad_token_id"] = special.pad;
  metadata = {{"dtype", model.dtype},
              {"gguf_weights", name_of(model.weights)},
              {kGeneration, generation},
              {"base_model", json_text(path.stem().string())}};
  // Where eos_token is not what parts documents, the tokenizer alone does not say it.
  if (special.end >= 0 && special.end == special.end_of_turn) metadata["end_of_turn"] = special.end;
  if (!has_gguf_tokenizer(file)) return false;
  recipe.tokenizer.path = path.string();
  return true;
}

}  // namespace

SavedModel::SavedModel(const fs::path& path, std::optional<int64_t> step)
    : path_(resolve_checkpoint_name(path)) {
  // "runs/a/checkpoints/step-1/" ends in an empty name; parents are counted without it.
  const fs::path folder = path_.has_filename() ? path_ : path_.parent_path();
  if (is_file(folder)) {
    if (read_gguf(folder, recipe_, checkpoint_.metadata)) tokenizer_path_ = folder;
    return;
  }
  RunFolder::recover(folder);
  if (path_exists(folder / "config.yaml")) {
    open_run(folder, step);
  } else if (path_exists(folder / "config.json")) {
    open_hugging_face();
  } else if (path_exists(folder / "state.json")) {
    const auto [run, number] = checkpoint_place(folder);
    if (!number || !path_exists(run / "config.yaml")) throw stray_checkpoint(path);
    open_run(run, number);
  } else if (!checkpoint_steps(RunFolder(folder).checkpoints()).empty()) {
    open_run(folder, {});  // which says that config.yaml is missing
  } else if (checkpoint_step(folder) && !path_exists(folder)) {
    // RUN@best stood for it a moment ago.
    throw checkpoint_error("there is no checkpoint '{}' any more; there are steps {}.", folder.string(),
                           fmt::join(checkpoint_steps(folder.parent_path()), ", "));
  } else {
    throw usage_error(
        "'{}' is no model: a run has a config.yaml, a checkpoint a state.json, a Hugging Face folder a "
        "config.json, and a GGUF file ends in .gguf.",
        path.string());
  }
}

void SavedModel::open_run(const fs::path& root, std::optional<int64_t> step) {
  const auto run = RunFolder::open(root);
  checkpoints_ = run.checkpoints();
  tokenizer_path_ = run.tokenizer();
  checkpoint_ = load_checkpoint(checkpoints_, step, /*weights_only=*/true);
  recipe_ = read_settings(run, checkpoint_.metadata);
}

void SavedModel::open_hugging_face() {
  const auto folder = read_hugging_face(path_);
  recipe_.model = folder.config;
  const fs::path named = fs::absolute(path_ / "").lexically_normal().parent_path();
  checkpoint_.metadata = {{"dtype", folder.dtype},
                          {kGeneration, read_generation_config(path_, folder.config.vocab_size)},
                          {"base_model", json_text(named.filename().string())}};
  if (!has_tokenizer(path_)) return;
  tokenizer_path_ = path_;
  recipe_.tokenizer.path = path_.string();
}

std::unique_ptr<Tokenizer> SavedModel::tokenizer() const {
  return tokenizer_path_.empty() ? nullptr : load_tokenizer(tokenizer_path_);
}

void SavedModel::load_weights(LanguageModel& model) const {
  if (is_gguf_name(path_) && is_file(path_)) return import_gguf_weights(GgufFile(path_), model);
  if (checkpoints_.empty()) return import_weights(path_, model);
  load_weights(model.parameters());
}

void SavedModel::load_weights(Parameters& parameters) const {
  if (checkpoints_.empty()) throw usage_error("'{}' is not a run.", path_.string());
  Safetensors weights = checkpoint_.weights;
  if (recipe_.lora.on()) merge_adapters(weights, recipe_.lora);
  tightloop::load_weights(parameters, weights, "model.safetensors");
}

Safetensors SavedModel::optimizer_state() const {
  if (checkpoints_.empty())
    throw usage_error(
        "'{}' is not a run of ours and has no optimizer's state: leave out train.init_optimizer.",
        path_.string());
  return load_checkpoint(checkpoints_, step()).optimizer;
}

void inherit_metadata(const nlohmann::json& parent, nlohmann::json& metadata) {
  for (const char* key : {"dtype", kGeneration, "base_model", "end_of_turn"})
    if (parent.contains(key) && !metadata.contains(key)) metadata[key] = parent[key];
}

std::vector<int32_t> imported_stop_tokens(const nlohmann::json& metadata) {
  return token_ids(imported_generation(metadata), "eos_token_id");
}

nlohmann::json imported_generation(const nlohmann::json& metadata) {
  return metadata.value(kGeneration, nlohmann::json());
}

PairTokenizers SavedModel::pair_tokenizers() const {
  if (checkpoints_.empty()) throw usage_error("'{}' is not a run.", path_.string());
  return load_pair_tokenizers(RunFolder(checkpoints_.parent_path()));
}

}  // namespace tightloop
