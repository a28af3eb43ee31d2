#pragma once

#include <filesystem>
#include <map>
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

/// Counts prompts, so that samples of equal ones differ: with n samples of each, the k-th of a prompt that
/// `before` equal ones stand before is sample before * n + k of it, whatever other prompts there are.
class EqualPrompts {
 public:
  /// How many equal ones came before.
  uint64_t before(const std::vector<int32_t>& ids) { return seen_[ids]++; }

 private:
  std::map<std::vector<int32_t>, uint64_t> seen_;
};

/// A file of prompts, one a line, an empty line too; of *.jsonl a line is {"prompt": "text"}, {"ids": [1, 2]}
/// or "text", and empty lines are none. What is wrong is a data error that names the line.
std::vector<TextPrompt> read_prompts(const std::filesystem::path& file, const Tokenizer& tokenizer,
                                     int64_t longest);

}  // namespace tightloop
