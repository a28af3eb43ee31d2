#pragma once

#include <filesystem>

#include "tokenizer/bpe_model.h"

namespace tightloop {

/// GPT-2's vocab.json and merges.txt. Tokens that are neither a byte nor merged (<|endoftext|>) are special;
/// in plain text they are spelled out unless asked otherwise.
BpeModel read_gpt2_files(const std::filesystem::path& vocab, const std::filesystem::path& merges);

/// A rank file of tiktoken: a line for each token, its bytes in base64 and its rank. Such a file does not say
/// how text is split nor which special tokens there are: that follows from its name or size, for the
/// encodings of OpenAI (gpt2, r50k_base, p50k_base, cl100k_base, o200k_base) and for qwen.
BpeModel read_tiktoken(const std::filesystem::path& path);

}  // namespace tightloop
