#include "tokenizer/unigram_words.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "core/random.h"
#include "support.h"
#include "tokenizer/sentencepiece.h"

namespace tightloop {
namespace {

using Arguments = std::unordered_map<std::string, std::string>;

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& list) : list_(list) {}
  bool done() const override { return at_ == list_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return list_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& list_;
  size_t at_ = 0;
};

/// Words of few letters in all orders: many segmentations of a word, many of them of nearly the same score.
std::string word(Random& random) {
  static const std::vector<std::string> kParts{"a",   "b",   "ab", "ba", "ü", "é",  "ж", "и",
                                               "the", "ing", "1",  "-",  ".", "un", "ß"};
  std::string text;
  for (uint64_t n = 1 + random.below(6); n > 0; --n) text += kParts[random.below(kParts.size())];
  return text;
}

std::vector<std::string> corpus() {
  Random random(3);
  std::vector<std::string> list(600);
  for (std::string& text : list)
    for (uint64_t n = 2 + random.below(9); n > 0; --n) text += word(random) + (n > 1 ? " " : "");
  return list;
}

std::string model_of(Arguments more = {}) {
  Arguments arguments{{"vocab_size", "160"},
                      {"model_type", "unigram"},
                      {"num_threads", "1"},
                      {"minloglevel", "2"},
                      {"hard_vocab_limit", "false"}};
  for (const auto& [key, value] : more) arguments[key] = value;
  const auto list = corpus();
  Sentences sentences(list);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &sentences, &model);
  EXPECT_TRUE(status.ok()) << status.message();
  return model;
}

std::string text_of(Random& random) {
  static const std::vector<std::string> kOdd{"\t",   "  ",     "ﬁ",      "Ⅳ",      "漢字", "\u0301",
                                             "\xc3", "😀",      "▁",      "\u00a0", "\n",   "ſ",
                                             "Q",    "\u00a8", "\u200b", "Ŀ",      "\x7f", "\x01"};
  std::string text;
  const bool odd = random.below(4) == 0;
  for (uint64_t n = random.below(random.below(50) == 0 ? 2000 : 20); n > 0; --n) {
    text += odd && random.below(4) == 0 ? kOdd[random.below(kOdd.size())] : word(random);
    if (random.below(5) > 0) text += random.below(9) == 0 ? "  " : " ";
  }
  return text;
}

TEST(UnigramWords, GivesTheIdsOfTheLibrary) {
  for (const Arguments& arguments : {Arguments{}, Arguments{{"normalization_rule_name", "nfkc"}},
                                     Arguments{{"normalization_rule_name", "identity"}},
                                     Arguments{{"byte_fallback", "true"}, {"vocab_size", "400"}}}) {
    const std::string model = model_of(arguments);
    sentencepiece::SentencePieceProcessor library;
    ASSERT_TRUE(library.LoadFromSerializedProto(model).ok());
    const SentencePiece ours(model, "a model");
    const auto words = UnigramWords::make(model, [](const std::string&) { return true; });
    ASSERT_NE(words, nullptr);
    Random random(8);
    int taken = 0;
    for (int i = 0; i < 4000; ++i) {
      const std::string text = text_of(random);
      std::vector<int> wanted;
      ASSERT_TRUE(library.Encode(text, &wanted).ok());
      ASSERT_EQ(ours.encode(text), wanted) << text;
      std::vector<int32_t> ids{7};
      if (words->encode(text, ids)) {
        ++taken;
      } else {
        ASSERT_EQ(ids.size(), 1u);
      }
    }
    EXPECT_GT(taken, 1000);
  }
}

TEST(UnigramWords, LeavesOtherModelsToTheLibrary) {
  const auto makes = [](const Arguments& arguments) {
    return UnigramWords::make(model_of(arguments), [](const std::string&) { return true; }) != nullptr;
  };
  EXPECT_TRUE(makes({}));
  EXPECT_FALSE(makes({{"model_type", "bpe"}}));
  EXPECT_FALSE(makes({{"treat_whitespace_as_suffix", "true"}}));
  EXPECT_FALSE(makes({{"split_by_whitespace", "false"}}));  // pieces across spaces
  EXPECT_FALSE(makes({{"add_dummy_prefix", "false"}}));
  EXPECT_FALSE(makes({{"remove_extra_whitespaces", "false"}}));
  EXPECT_FALSE(makes({{"user_defined_symbols", "abba"}}));
  EXPECT_FALSE(makes({{"normalization_rule_name", "nmt_nfkc_cf"}}));
  EXPECT_EQ(UnigramWords::make("not a model", [](const std::string&) { return true; }), nullptr);
}

}  // namespace
}  // namespace tightloop
