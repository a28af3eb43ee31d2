#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace tightloop {

/// Tokens to text as they arrive, up to the stop string that ends first, wherever the tokens' borders are.
/// Text that may be the beginning of a stop string, or of a character of which bytes are missing, is kept back until it is known.
class TextStream {
 public:
  /// `before`: the tokens that the text continues. They decide whether it begins with a space
  /// (SentencePiece).
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops,
             std::span<const int32_t> before = {});

  /// The text that this token makes certain. Nothing more comes once stopped().
  std::string add(int32_t id);
  /// What was kept back, when no token follows.
  std::string finish();
  bool stopped() const { return stopped_; }
  /// All that was given out so far.
  const std::string& text() const { return text_; }

 private:
  std::string release(size_t bytes);
  void forget();

  const Tokenizer& tokenizer_;
  std::vector<std::string> stops_;
  // A token's text may depend on those before it: SentencePiece drops spaces until there is other text.
  std::vector<int32_t> recent_;
  size_t known_ = 0;  // bytes that recent_ decodes to
  std::string pending_, text_;
  bool stopped_ = false;
};

}  // namespace tightloop
