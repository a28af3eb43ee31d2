#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/language_model.h"

namespace tightloop {

/// What a Hugging Face folder (config.json, model.safetensors or its shards) says about itself.
struct HuggingFaceFolder {
  ModelConfig config;  // all sizes set
  std::string dtype;   // fp32, bf16, fp16: the narrowest that holds every tensor as it is
};

/// Reads config.json of gpt2, llama, qwen2, qwen3, qwen3_moe, as transformers 4 and 5 write it, and of our
/// own export of nanochat. A setting that our families do not have is refused by its name.
HuggingFaceFolder read_hugging_face(const std::filesystem::path& folder);

/// Whether load_tokenizer() has something to read there.
bool has_tokenizer(const std::filesystem::path& folder);

/// Copies a folder's tensors into a model of the same sizes, any device and dtype. A tensor that is missing,
/// unknown, of another shape or not finite is a checkpoint error that names it.
void import_weights(const std::filesystem::path& folder, LanguageModel& model);

/// Special tokens of a folder; -1: none.
struct HuggingFaceTokens {
  int64_t begin = -1, end = -1, pad = -1;
  std::vector<int32_t> stops{};  // generation ends at `end`, and at any of these
};

/// Writes config.json, generation_config.json and model.safetensors (in shards above `shard_bytes`) such that
/// transformers 4 and 5 load them. nanochat, which has no layout there, is written under our own names.
void export_weights(const LanguageModel& model, at::ScalarType dtype, const HuggingFaceTokens& tokens,
                    const std::filesystem::path& folder, uint64_t shard_bytes = 5'000'000'000);

/// Those of weights in files.
template <>
inline constexpr auto kChoices<at::ScalarType> = std::to_array<Choice<at::ScalarType>>({
    {at::kBFloat16, "bf16"},
    {at::kFloat, "fp32"},
    {at::kHalf, "fp16"},
});
at::ScalarType dtype_of_word(const std::string& word);

// The two halves, for tests.
ModelConfig config_from_hugging_face(const nlohmann::json& config, const std::string& file);
nlohmann::ordered_json config_to_hugging_face(const ModelConfig& config, at::ScalarType dtype,
                                              const HuggingFaceTokens& tokens);

}  // namespace tightloop
