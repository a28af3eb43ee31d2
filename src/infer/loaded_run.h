#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/device.h"
#include "model/language_model.h"
#include "ops/quantized_linear.h"
#include "tokenizer/tokenizer.h"
#include "train/run/saved_model.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// A trained model, ready to be asked.
struct LoadedRun {
  Recipe recipe;  // of a Hugging Face folder only model, tokenizer and chat say something
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<LanguageModel> model;
  int64_t step = 0;
  nlohmann::json metadata{};  // stage, parent, dtype, ... as the checkpoint has them
};

/// Loads a run (its newest checkpoint, or that of `step`), a checkpoint's folder or a Hugging Face folder
/// onto a device: auto, cpu, cuda:N. It computes in `precision` (none: as it was trained), with its weights
/// packed where `weights` says so (model/quantized_weights.h); it cannot be trained any more then.
LoadedRun load_model(const std::filesystem::path& path, const std::string& device_name,
                     std::optional<int64_t> step = {}, std::optional<Precision> precision = {},
                     std::optional<ops::WeightFormat> weights = {});
/// The same of what is open: its files may be gone by now, if a training has newer ones.
LoadedRun load_model(const SavedModel& saved, const std::string& device_name,
                     std::optional<Precision> precision = {}, std::optional<ops::WeightFormat> weights = {});

/// Whether it was trained on text alone: what it makes of a conversation is not worth much.
bool has_seen_no_conversation(const LoadedRun& run);

}  // namespace tightloop
