#pragma once

#include <filesystem>

#include "tokenizer/bpe_model.h"

namespace tightloop {

/// Reads a tokenizer.json of Hugging Face tokenizers: BPE models with ByteLevel, Digits or Split
/// pre-tokenizers, added tokens, NFC or no normalizer. Anything else is a data error that names it. `encode`
/// then gives what theirs gives with add_special_tokens=False.
BpeModel read_hf_json(const std::filesystem::path& path);
/// The same from memory; errors name `source`.
BpeModel parse_hf_json(const std::string& bytes, const std::string& source);

/// The same file, such that `tokenizers.Tokenizer.from_file` reads it.
void write_hf_json(const BpeModel& model, const std::filesystem::path& path);

/// What a tokenizer_config.json adds to tokenizer.json: `eos_token`, and under `tightloop`, which others
/// leave alone, what Hugging Face's file has no place for: flags, and the end of text where eos_token ends
/// turns.
void read_hf_config(const std::filesystem::path& path, BpeModel& model);
/// The same file as JSON text; empty where tokenizer.json says it all.
std::string hf_config(const BpeModel& model);

/// The whole file; a data error when it is larger than any tokenizer is (1 GiB).
std::string read_tokenizer_file(const std::filesystem::path& path);

/// Puts a token, as vocab.json and tokenizer.json write it, where its id says. A data error when the id is
/// taken or too large.
void set_token(BpeModel& model, std::string_view written, int64_t id, const std::string& source);

}  // namespace tightloop
