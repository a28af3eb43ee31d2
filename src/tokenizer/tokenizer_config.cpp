#include "tokenizer/tokenizer_config.h"

#include "core/config.h"

namespace tightloop {

void TokenizerConfig::describe(Fields& fields) {
  fields.add("path", path, "Folder or file of an existing tokenizer; empty: train one on the run's data");
  fields.add("target_path", target_path,
             "Of pairs: the tokenizer of the translations; empty: the same as of the sources");
  fields.add("type", type, "What is trained");
  fields
      .add("character_coverage", character_coverage,
           "SentencePiece: fraction of the text's characters that get a token; 1 for small alphabets")
      .range(0.9, 1);
  fields.add("joint", joint, "Of pairs: one trained tokenizer for both sides, or one for each");
  fields
      .add("vocab_size", vocab_size,
           "Size of a trained vocabulary; 257: one token a byte, and the end of text; 0: by the size of the "
           "data")
      .range(0, 1'000'000);
  fields
      .add("train_bytes", train_bytes,
           "Text that a tokenizer is trained on at most, from the beginning of the files; 0: all of it")
      .range(0, 1e15);
  fields
      .add("document_bytes", document_bytes,
           "Of each document, what a tokenizer is trained on at most; 0: all of it")
      .range(0, 1e15);
  fields.add("pattern", pattern, "How text is split before merging");
  fields.add(
      "special_tokens", special_tokens,
      "Tokens of a trained vocabulary that text never becomes: the end of documents, marks of a chat "
      "(chat.form chatml; those of a byte-level BPE come last, and 257 or 258 tokens have room for the "
      "first alone)");
}

std::vector<std::string> TokenizerConfig::special_tokens_for(int64_t size) const {
  const bool fit = size >= 256 + static_cast<int64_t>(special_tokens.size());
  if (fit || special_tokens != TokenizerConfig().special_tokens) return special_tokens;
  return {special_tokens[0]};
}

std::vector<std::string> TokenizerConfig::chat_tokens() const {
  std::vector<std::string> tokens = special_tokens;
  std::erase(tokens, "<|endoftext|>");
  return tokens;
}

}  // namespace tightloop
