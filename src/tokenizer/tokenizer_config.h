#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/choice.h"
#include "tokenizer/split_pattern.h"

namespace tightloop {

class Fields;

/// What is trained.
enum class TokenizerType { kByteBpe, kUnigram, kBpe };
template <>
inline constexpr auto kChoices<TokenizerType> = std::to_array<Choice<TokenizerType>>({
    {TokenizerType::kByteBpe, "byte_bpe", "byte-level BPE"},
    {TokenizerType::kUnigram, "unigram", "a SentencePiece model"},
    {TokenizerType::kBpe, "bpe", "a SentencePiece model"},
});

/// Section "tokenizer": an existing one, or how to train one from the run's own data.
struct TokenizerConfig {
  std::string path, target_path;
  TokenizerType type = TokenizerType::kByteBpe;
  int64_t vocab_size = 4096;
  int64_t train_bytes = 0, document_bytes = 0;
  bool size_is_chosen = false;  // by the program: no setting, and text that gives fewer tokens is no surprise
  double character_coverage = 0.9995;
  bool joint = true;
  SplitPattern pattern = SplitPattern::kGpt2;
  std::vector<std::string> special_tokens{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};

  /// The special tokens of a byte-level BPE of this size. One too small for the default ones has the end of
  /// text alone.
  std::vector<std::string> special_tokens_for(int64_t size) const;
  /// Those besides the end of text, which SentencePiece has its own for.
  std::vector<std::string> chat_tokens() const;

  void describe(Fields& fields);
};

}  // namespace tightloop
