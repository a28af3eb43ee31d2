#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "core/device.h"
#include "model/language_model.h"
#include "tokenizer/tokenizer.h"
#include "train/recipe.h"

namespace tightloop {

/// A trained model as a run's folder keeps it, ready to be asked.
struct LoadedRun {
  Recipe recipe;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<LanguageModel> model;
  int64_t step = 0;
};

/// Loads the newest checkpoint of a run (or that of `step`) onto a device: auto, cpu, cuda:N.
LoadedRun load_run(const std::filesystem::path& folder, const std::string& device_name,
                   std::optional<int64_t> step = {});

}  // namespace tightloop
