#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/choice.h"
#include "model/files/gguf.h"

namespace tightloop {

/// What `export --format` writes.
enum class ExportFormat { kHuggingFace, kGguf };
template <>
inline constexpr auto kChoices<ExportFormat> = std::to_array<Choice<ExportFormat>>({
    {ExportFormat::kHuggingFace, "hf", "a folder for transformers"},
    {ExportFormat::kGguf, "gguf", "a file for llama.cpp"},
});

/// Writes a run, a checkpoint, a Hugging Face folder or a GGUF file as one GGUF file with its tokenizer and
/// chat template: whole or not at all, and never over another one. `weights` none: those of the imported GGUF
/// file, else the dtype of the imported weights, or bf16. Gives the type that was written.
std::string export_gguf(const std::filesystem::path& from, const std::filesystem::path& to,
                        std::optional<GgufWeights> weights, std::optional<int64_t> step = {});

}  // namespace tightloop
