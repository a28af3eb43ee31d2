#pragma once

#include <cstdint>
#include <string>

#include "data/batch/batch.h"
#include "data/batch/pairs.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

/// A row as a person reads it: what will be learned in green (without colour: in [brackets]), what is only
/// read as it is, `|` between documents, padding left out. Line ends stay; other control characters are
/// spelled out.
std::string show_row(const Batch& batch, int64_t row, const Tokenizer& tokenizer, bool colour);

/// A line for each token of a row: its place, its id, 1 where it is learned, and its text in quotes.
std::string show_tokens(const Batch& batch, int64_t row, const Tokenizer& tokenizer);

/// As show_row, of a pair: the sentence, and its translation on a line of its own.
std::string show_pair(const PairBatch& batch, int64_t row, const Tokenizer& source, const Tokenizer& target,
                      bool colour);

}  // namespace tightloop
