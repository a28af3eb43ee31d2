#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace tightloop {

/// A prompt as it was written, and as tokens.
struct TextPrompt {
  std::string text;
  std::vector<int32_t> ids;
};

/// The longest texts that a token stands for have so many bytes, about: one of more than this a token need
/// not be tokenized to know that it is too long.
inline constexpr int64_t kMostTokenBytes = 256;
/// A usage error where the text cannot fit into `longest` tokens.
void check_length(std::string_view text, int64_t longest);

/// An empty text is a document from its start: the end-of-text token. One that cannot fit into `longest`
/// tokens is a usage error.
TextPrompt text_prompt(std::string text, const Tokenizer& tokenizer, int64_t longest);

/// Ids as a user writes them: "1,2,3", "1 2 3" or "[1, 2, 3]".
TextPrompt ids_prompt(std::string_view ids, const Tokenizer& tokenizer);

/// A file of prompts, one a line; of *.jsonl a line is {"prompt": "text"}, {"ids": [1, 2]} or "text". Empty
/// lines are none. What is wrong is a data error that names the line.
std::vector<TextPrompt> read_prompts(const std::filesystem::path& file, const Tokenizer& tokenizer,
                                     int64_t longest);

}  // namespace tightloop
