#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/split_pattern.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

struct BpeTrainOptions {
  int32_t vocab_size = 8192;  // bytes (256) and special tokens included
  SplitPattern pattern = SplitPattern::kGpt2;
  std::vector<std::string> special_tokens{"<|endoftext|>"};  // they get the last ids
  int threads = 0;                                           // 0: all cores
  /// Called now and then from the calling thread: what is being done, how much of it, of how much (0:
  /// unknown).
  std::function<void(std::string_view phase, size_t done, size_t total)> progress;
};

/// Trains a byte-level BPE: id b is byte b, then come the merges, most frequent first, then the special
/// tokens. The result depends on the documents (not on their order) and on nothing else. Where the text has
/// no more pairs to merge, the vocabulary stays smaller than asked. next_document fills its argument and
/// returns true, or returns false when there are no more.
std::unique_ptr<Tokenizer> train_bpe(const BpeTrainOptions& options,
                                     const std::function<bool(std::string&)>& next_document);

}  // namespace tightloop
