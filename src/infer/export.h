#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "model/files/huggingface.h"

namespace tightloop {

struct ExportOptions {
  std::optional<at::ScalarType> dtype;  // none: that of the imported weights, or bf16
  std::optional<int64_t> step;          // of a run: this checkpoint instead of the newest
  uint64_t shard_bytes = 5'000'000'000;
};

/// Writes a run, a checkpoint or a Hugging Face folder as a new Hugging Face folder: config.json,
/// generation_config.json, model.safetensors, the tokenizer and its chat template, and a model card. The
/// folder appears whole or not at all; one that has something in it already is refused. Gives the dtype that
/// was written.
std::string export_model(const std::filesystem::path& from, const std::filesystem::path& to,
                         const ExportOptions& options);

}  // namespace tightloop
