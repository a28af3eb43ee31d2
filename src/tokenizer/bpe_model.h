#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/merge.h"
#include "tokenizer/split.h"

namespace tightloop {

/// A token that is found in the text before anything else happens to it (as Hugging Face defines it).
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = true;
  bool normalized = false;              // looked for in the normalized text, not in the text as it came
  bool single_word = false;             // only where no word character is beside it
  bool lstrip = false, rstrip = false;  // takes the white space beside it
};

/// One step of cutting text into pieces: a scanner, or a regular expression where there is none.
struct SplitRule {
  SplitPattern pattern = SplitPattern::kGpt2;
  std::string regex;  // not empty: this counts, and `pattern` does not
};

/// A byte-level BPE as data: all that decides ids, and what files need besides.
struct BpeModel {
  struct Token {
    enum Kind : uint8_t { kAbsent, kBytes, kVerbatim };
    std::string bytes;
    Kind kind = kAbsent;  // kVerbatim: the file writes it as it is, not in the byte alphabet
  };
  std::vector<Token> tokens;      // by id, added ones included
  std::vector<MergeRule> merges;  // lowest rank first
  std::vector<AddedToken> added;
  std::vector<SplitRule> splits{SplitRule{}};  // each applied to the pieces of the one before
  bool nfc = false;
  bool add_prefix_space = false;
  bool ignore_merges = false;  // a piece that is a token is not looked into
  bool same_rank = false;      // tiktoken: all merges to one token have one rank
  int32_t unknown = -1;        // for bytes that are not in the vocabulary; -1: they are dropped
  bool parse_added = true;     // whether encode() finds added tokens in plain text unless told otherwise
  std::string post_processor;  // JSON, kept for the file; encode() adds nothing to the text's own ids
  std::string end_of_text;     // stands between documents where there is no <|endoftext|>
};

}  // namespace tightloop
