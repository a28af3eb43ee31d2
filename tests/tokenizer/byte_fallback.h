#pragma once

#include <sentencepiece_trainer.h>

#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "tokenizer/sentencepiece.h"

namespace tightloop::testing {

/// A SentencePiece model that spells characters it does not know in bytes, as Llama's does. `symbols`: tokens
/// that any text with their names becomes, parted by commas.
inline std::unique_ptr<SentencePiece> byte_fallback_model(const std::string& type,
                                                          const std::string& symbols = "") {
  struct Sentences : sentencepiece::SentenceIterator {
    std::vector<std::string> list{"the cat sees a dog in the garden", "a dog sleeps under the trees",
                                  "the garden and the trees", "cats and dogs"};
    size_t at = 0;
    bool done() const override { return at == list.size(); }
    void Next() override { ++at; }
    const std::string& value() const override { return list[at]; }
    sentencepiece::util::Status status() const override { return {}; }
  } sentences;
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train({{"vocab_size", "300"},
                                                                  {"model_type", type},
                                                                  {"byte_fallback", "true"},
                                                                  {"user_defined_symbols", symbols},
                                                                  {"normalization_rule_name", "identity"},
                                                                  {"hard_vocab_limit", "false"},
                                                                  {"remove_extra_whitespaces", "false"},
                                                                  {"num_threads", "1"},
                                                                  {"minloglevel", "2"}},
                                                                 &sentences, &model);
  if (!status.ok()) return nullptr;
  return std::make_unique<SentencePiece>(model, "a test's model");
}

/// Words that the model knows, characters of one to four bytes that it does not, and spaces.
inline std::string mixed_text(Random& random) {
  static const char* const kParts[] = {"the", "cat", "€", "é", "🙂",  "漢字",        " ",
                                       "  ",  "\n",  "x", "Ω", "a dog", "\xef\xbf\xbd"};
  std::string text;
  for (uint64_t i = random.below(12); i > 0; --i) text += kParts[random.below(std::size(kParts))];
  return text;
}

}  // namespace tightloop::testing
