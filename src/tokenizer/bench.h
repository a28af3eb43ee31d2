#pragma once

#include <string_view>

#include "tokenizer/tokenizer.h"

namespace tightloop {

struct TokenizerSpeed {
  double mb_s = 0;                              // millions of bytes a second
  double tokens_s = 0;                          // tokens a second
  double seconds = 0;                           // of the best round
  size_t bytes = 0, tokens = 0, documents = 0;  // of one round
};

/// Encodes a text, cut into documents of 4 KB (4,096 characters; `whole`: not cut), repeated until a round
/// has `megabytes`, by `threads` threads. The best of `rounds`.
TokenizerSpeed measure_tokenizer(const Tokenizer& tokenizer, std::string_view text, int threads,
                                 double megabytes = 8, bool whole = false, int rounds = 5);

}  // namespace tightloop
