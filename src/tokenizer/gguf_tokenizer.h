#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/io/gguf.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/tokenizer.h"

namespace tightloop {

class SentencePiece;

/// Types of tokens, by the numbers of llama.cpp and of SentencePiece.
enum class GgufTokenType : int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

/// The special tokens that a file names; -1: none.
struct GgufSpecialTokens {
  int64_t begin = -1, end = -1, end_of_turn = -1, end_of_message = -1, pad = -1;
  int64_t unknown = -1;  // of a SentencePiece model, which says so itself
};

/// Adds the tokenizer to a file's metadata such that llama.cpp makes the same ids: tokens, merges or scores,
/// types, special tokens; `rows` is the size of the model's embedding. What has no place there and decides
/// ids is a usage error, or a warning where it is rare. What llama.cpp does not read stands in tightloop.*.
void add_gguf_tokenizer(const Tokenizer& tokenizer, int64_t rows, const GgufSpecialTokens& special,
                        bool adds_begin, GgufMetadata& metadata);

/// Whether the tokenizer's file says that a text gets this token in front.
bool adds_begin_of_text(const Tokenizer& tokenizer, int64_t begin);

/// The tokenizer of a GGUF file, with its chat templates. A kind or a split pattern that is not known here,
/// and lists that do not fit together, are checkpoint errors that name the file.
std::unique_ptr<Tokenizer> read_gguf_tokenizer(const GgufFile& file);
GgufSpecialTokens read_gguf_special_tokens(const GgufFile& file);
/// Whether it has one at all.
bool has_gguf_tokenizer(const GgufFile& file);

// The two kinds.
/// `end_of_text`: the token between documents, whose name the model may leave open.
void add_gguf_bpe(const BpeModel& model, const std::string& end_of_text, int64_t rows,
                  GgufMetadata& metadata);
BpeModel read_gguf_bpe(const GgufFile& file);
void add_gguf_sentencepiece(const SentencePiece& tokenizer, int64_t rows, GgufMetadata& metadata);
/// The bytes of a *.model file.
std::string read_gguf_sentencepiece(const GgufFile& file);

/// Tokens, types and scores of a file, of one length each (scores: or none); rows that only fill up the
/// embedding are left out at the end.
struct GgufTokenLists {
  std::vector<std::string> texts;
  std::vector<GgufTokenType> types;
  std::vector<float> scores;
};
GgufTokenLists read_gguf_token_lists(const GgufFile& file);
/// Adds them, filled up to `rows`. A usage error where a text stands twice, which llama.cpp does not take.
void add_gguf_token_lists(GgufTokenLists lists, int64_t rows, GgufMetadata& metadata);
/// The text of a row that stands for no token.
std::string gguf_filler(size_t id);

}  // namespace tightloop
