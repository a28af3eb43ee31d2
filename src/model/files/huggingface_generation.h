#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/files/huggingface.h"

namespace tightloop {

/// What a Hugging Face folder says about generation: generation_config.json as it is. The tokens to stop at
/// are those of config.json where it names none; without the file, so are the other token ids. A stop token
/// outside of the vocabulary is a checkpoint error.
nlohmann::json read_generation_config(const std::filesystem::path& folder, int64_t vocab_size);

/// The ids under a key of such a file: one, several or, where it is missing or something else, none.
std::vector<int32_t> token_ids(const nlohmann::json& config, const std::string& key);

/// The file for a model that came from `imported` (null: from none): all of that, but for eos_token_id, which
/// lists the stop tokens of both. Tokens that it lacks are added.
nlohmann::json generation_config(const nlohmann::json& imported, const HuggingFaceTokens& tokens);

}  // namespace tightloop
