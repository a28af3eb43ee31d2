#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>

#include "model/files/huggingface.h"
#include "tokenizer/tokenizer.h"
#include "train/run/saved_model.h"

namespace tightloop {

/// A folder's tokenizer_config.json; an empty object where it has none.
nlohmann::ordered_json tokenizer_config(const std::filesystem::path& folder);

/// The name of a special token, which a tokenizer may leave out of text.
std::string token_name(const Tokenizer& tokenizer, int64_t id);

/// A token that tokenizer_config.json names, as a text or as an object with `content`; -1: none.
int64_t named_token(const nlohmann::ordered_json& config, const char* key, const Tokenizer& tokenizer);

/// What ends a turn ends a text of a model that has learned conversations. Otherwise, and for the other
/// tokens: what the imported model's files name, or else what the tokenizer has.
HuggingFaceTokens special_tokens(const SavedModel& saved, const Tokenizer* tokenizer,
                                 const nlohmann::ordered_json& config);

}  // namespace tightloop
