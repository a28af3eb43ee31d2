#include "tokenizer/sentencepiece.h"

#include <algorithm>

#include "core/files.h"
#include "core/random.h"
#include "support.h"
#include "tokenizer/byte_fallback.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;

std::vector<std::string> sentences() {
  const char* const words[] = {"the",    "cat",   "sees",  "a",   "dog",   "in",
                               "garden", "under", "trees", "and", "sleeps"};
  Random random(1);
  std::vector<std::string> list(400);
  for (auto& sentence : list)
    for (uint64_t n = 3 + random.below(8); n > 0; --n)
      sentence += std::string(words[random.below(11)]) + (n > 1 ? " " : ".");
  return list;
}

std::unique_ptr<Tokenizer> trained(TokenizerType type, const std::vector<std::string>& list, int vocab = 30) {
  SentencePieceTrainOptions options;
  options.vocab_size = vocab;
  options.model_type = type;
  options.threads = 1;
  return train_sentencepiece(options, [&, i = size_t{0}](std::string& sentence) mutable {
    if (i == list.size()) return false;
    sentence = list[i++];
    return true;
  });
}

TEST(SentencePiece, both_kinds_train_encode_decode_and_save) {
  const auto list = sentences();
  for (const auto type : {TokenizerType::kUnigram, TokenizerType::kBpe}) {
    const auto tokenizer = trained(type, list);
    EXPECT_EQ(tokenizer->vocab_size(), 30);
    EXPECT_EQ(tokenizer->end_of_text(), 3);
    EXPECT_EQ(tokenizer->token_id("<pad>"), 0);
    EXPECT_EQ(tokenizer->token_id("no such piece"), std::nullopt);
    TempFolder folder;
    tokenizer->save(folder.path());
    const auto loaded = load_tokenizer(folder.path());
    EXPECT_EQ(loaded->fingerprint(), tokenizer->fingerprint());
    for (const auto& sentence : list) {
      const auto ids = tokenizer->encode(sentence);
      EXPECT_EQ(tokenizer->decode(ids), sentence);
      EXPECT_EQ(loaded->encode(sentence), ids);
    }
    EXPECT_GT(tokenizer->encode("</s>").size(), 1u);  // control tokens are never parsed
    error_of(ExitCode::kData, [&] { tokenizer->decode(std::vector<int32_t>{30}); });
  }
}

TEST(SentencePiece, tokens_have_the_bytes_that_they_spell) {
  const auto list = sentences();
  const auto tokenizer = trained(TokenizerType::kUnigram, list);
  const auto bytes = tokenizer->token_bytes();
  ASSERT_EQ(bytes.size(), 30u);
  for (int32_t special = 0; special < 4; ++special) EXPECT_EQ(bytes[special], 0);
  for (const auto& sentence : list) {
    size_t sum = 0;
    for (const int32_t id : tokenizer->encode(sentence)) sum += bytes[id];
    EXPECT_EQ(sum, sentence.size() + 1) << "the first word has a space before it, too";
  }
}

TEST(SentencePiece, batches_over_threads_are_the_same) {
  const auto list = sentences();
  const auto tokenizer = trained(TokenizerType::kBpe, list);
  const std::vector<std::string_view> views(list.begin(), list.end());
  std::vector<std::vector<int32_t>> one, many;
  encode_batch(*tokenizer, views, one, 1);
  encode_batch(*tokenizer, views, many, 4);
  EXPECT_EQ(one, many);
}

TEST(SentencePiece, bytes_decode_to_themselves_where_a_character_is_not_whole) {
  for (const char* type : {"unigram", "bpe"}) {
    const auto tokenizer = testing::byte_fallback_model(type);
    ASSERT_NE(tokenizer, nullptr);
    const auto ids = tokenizer->encode("a €");
    EXPECT_EQ(tokenizer->decode(ids), "a €");
    const std::span<const int32_t> all(ids);
    EXPECT_EQ(tokenizer->decode(all.first(ids.size() - 1)), "a \xe2\x82");
    EXPECT_EQ(tokenizer->decode(all.first(ids.size() - 2)), "a \xe2");
    EXPECT_EQ(tokenizer->decode(all.last(2)), "\x82\xac");
    Random random(2);
    for (int round = 0; round < 500; ++round) {
      const std::string text = testing::mixed_text(random);
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    }
  }
}

TEST(SentencePiece, control_symbols_are_tokens_that_text_never_becomes) {
  const auto list = sentences();
  for (const auto type : {TokenizerType::kUnigram, TokenizerType::kBpe}) {
    SentencePieceTrainOptions options;
    options.vocab_size = 32, options.model_type = type, options.threads = 1;
    options.control_symbols = {"<|im_start|>", "<|im_end|>"};
    const auto tokenizer = train_sentencepiece(options, [&, i = size_t{0}](std::string& sentence) mutable {
      return i < list.size() && (sentence = list[i++], true);
    });
    EXPECT_EQ(tokenizer->vocab_size(), 32);
    const auto start = tokenizer->token_id("<|im_start|>");
    ASSERT_TRUE(start && tokenizer->token_id("<|im_end|>")) << type;
    EXPECT_EQ(std::ranges::count(tokenizer->encode("<|im_start|>the cat"), *start), 0) << type;
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(list[0])), list[0]);
    options.control_symbols = {"a,b"};
    error_of(ExitCode::kUsage, [&] { train_sentencepiece(options, [](std::string&) { return false; }); });
  }
}

// The trainer would leave a text of more than 64 KB out.
TEST(SentencePiece, a_long_text_is_cut_and_not_left_out) {
  std::string whole, spaces;
  for (const auto& sentence : sentences()) whole += sentence + "\n", spaces += sentence + " ";
  while (whole.size() < 200'000) whole += whole;
  while (spaces.size() < 200'000) spaces += spaces;
  const std::string dense(200'000, 'x');
  for (const std::string& text : {whole, spaces}) {
    const auto tokenizer = trained(TokenizerType::kBpe, {text}, 50);
    EXPECT_EQ(tokenizer->vocab_size(), 50);
    EXPECT_EQ(tokenizer->encode("the").size(), 1u);
  }
  EXPECT_LT(trained(TokenizerType::kBpe, {dense + "é" + dense}, 12)->encode(std::string(64, 'x')).size(),
            20u);
}

TEST(SentencePiece, may_have_fewer_tokens_than_asked) {
  const auto list = sentences();
  SentencePieceTrainOptions options;
  options.vocab_size = 5000, options.threads = 1, options.exact = false;
  const auto tokenizer = train_sentencepiece(options, [&, i = size_t{0}](std::string& sentence) mutable {
    return i < list.size() && (sentence = list[i++], true);
  });
  EXPECT_LT(tokenizer->vocab_size(), 5000);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(list[0])), list[0]);
}

TEST(SentencePiece, says_why_it_cannot_train) {
  EXPECT_NE(
      error_of(ExitCode::kUsage, [] { trained(TokenizerType::kByteBpe, sentences()); }).find("byte_bpe"),
      std::string::npos);
  const auto message = error_of(ExitCode::kData, [] { trained(TokenizerType::kUnigram, sentences(), 5000); });
  EXPECT_NE(message.find("too high (5000)"), std::string::npos) << message;
  EXPECT_EQ(message.find(".cc("), std::string::npos) << message;
  error_of(ExitCode::kData, [] { trained(TokenizerType::kBpe, {}); });
}

}  // namespace
}  // namespace tightloop
