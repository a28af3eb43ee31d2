#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/unigram_words.h"

namespace tightloop {

/// A SentencePiece model (*.model), through libsentencepiece. Text is normalized by the model's rules, so
/// decode() may give something else than was encoded; control tokens in plain text are always spelled out.
class SentencePiece : public Tokenizer {
 public:
  /// From the bytes of a model file. Errors name `source`.
  SentencePiece(const std::string& bytes, const std::string& source);
  ~SentencePiece() override;

  using Tokenizer::encode;
  int32_t vocab_size() const override;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  void encode(std::string_view text, std::vector<int32_t>& ids, SpecialText) const override {
    encode(text, ids);
  }
  /// Its control symbols by their names, the texts between them each for itself.
  bool encode_with_ends(std::string_view text, std::vector<int32_t>& ids,
                        std::vector<uint32_t>& ends) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::optional<int32_t> token_id(std::string_view token) const override;
  /// Of the text as the model normalizes it: a word's mark is the space before it.
  std::vector<int32_t> token_bytes() const override;
  /// The model's end of sentence.
  int32_t end_of_text() const override;
  uint64_t fingerprint() const override;

 protected:
  /// Writes tokenizer.model.
  void write(const std::filesystem::path& folder) const override;

 private:
  struct Processor;
  std::unique_ptr<Processor> processor_;
  std::unique_ptr<const UnigramWords> words_;  // a quicker way for most texts, where the model allows it
  std::string source_;
};

struct SentencePieceTrainOptions {
  int32_t vocab_size = 8000;
  TokenizerType model_type = TokenizerType::kUnigram;  // or kBpe
  double character_coverage = 0.9995;                  // 1 for alphabets of few characters
  int pad_id = 0, unk_id = 1, bos_id = 2, eos_id = 3;
  bool exact = true;  // fail where the text does not give so many; else there are fewer
  std::vector<std::string> control_symbols;  // tokens that text never becomes, such as marks of a chat
  int threads = 0;  // 0: all cores. The unigram trainer sums over threads: other counts may round otherwise.
};

/// Trains a model on sentences; those of more than 32 KB are cut at ends of lines, spaces or characters.
/// next_sentence fills its argument and returns true, or returns false at the
/// end.
std::unique_ptr<Tokenizer> train_sentencepiece(const SentencePieceTrainOptions& options,
                                               const std::function<bool(std::string&)>& next_sentence);

}  // namespace tightloop
