#include "tokenizer/gguf_tokenizer.h"

#include "core/random.h"
#include "fuzz.h"
#include "support.h"
#include "tokenizer/bpe.h"
#include "tokenizer/bpe_train.h"
#include "tokenizer/byte_fallback.h"
#include "tokenizer/jinja/template_files.h"
#include "tokenizer/sentencepiece.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;

void write_tokenizer(const Tokenizer& tokenizer, const fs::path& path, const GgufSpecialTokens& special,
                     bool adds_begin = false, int64_t more_rows = 5) {
  GgufMetadata metadata;
  add_gguf_tokenizer(tokenizer, tokenizer.vocab_size() + more_rows, special, adds_begin, metadata);
  write_gguf(path, metadata, {}, [](size_t, const PutBytes&) {});
}

std::unique_ptr<Tokenizer> read_back(const fs::path& path) { return read_gguf_tokenizer(GgufFile(path)); }

const std::vector<std::string> kTexts{"",
                                      "Hello, world!",
                                      "  two  spaces\n\n\nand lines \t ",
                                      "I'll don't 'S 12345 1 23",
                                      "<|endoftext|>x<|im_end|>",
                                      "Größe ÉCOLE 你好，世界 🦙🦙 \xff\xfe",
                                      "a\n  ",
                                      "<think>\nso</think>",
                                      "\r\n \r\n",
                                      "naïve café e\xcc\x81"};

BpeModel trained_model(SplitPattern pattern) {
  BpeTrainOptions options;
  options.special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  options.vocab_size = 300;
  options.pattern = pattern;
  std::vector<std::string> texts(20, "the cat and the other cats see 123 dogs, don't they? the the");
  size_t at = 0;
  const auto trained = train_bpe(options, [&](std::string& text) {
    if (at == texts.size()) return false;
    text = texts[at++];
    return true;
  });
  return dynamic_cast<const Bpe&>(*trained).model();
}

TEST(GgufTokenizer, ABpeComesBackAsItWas) {
  for (const SplitPattern pattern : {SplitPattern::kGpt2, SplitPattern::kQwen, SplitPattern::kCl100kHf,
                                     SplitPattern::kCl100k, SplitPattern::kO200k}) {
    SCOPED_TRACE(name_of(pattern));
    const TempFolder folder;
    BpeModel model = trained_model(pattern);
    model.nfc = pattern == SplitPattern::kGpt2;
    model.ignore_merges = pattern == SplitPattern::kCl100kHf;
    model.end_of_text = "<|im_start|>";
    model.added[1].special = false, model.added[1].rstrip = true, model.added[1].normalized = true;
    model.tokens.resize(model.tokens.size() + 3);  // holes
    model.tokens.push_back({"<x>", BpeModel::Token::kVerbatim});
    model.added.push_back({.content = "<x>", .id = static_cast<int32_t>(model.tokens.size()) - 1});
    const Bpe bpe(model, "a test");
    write_tokenizer(bpe, folder / "t.gguf", {.begin = -1, .end = 2, .pad = 0});
    const auto read = read_back(folder / "t.gguf");
    EXPECT_EQ(read->fingerprint(), bpe.fingerprint());
    EXPECT_EQ(read->vocab_size(), bpe.vocab_size()) << "the rows that fill up are no tokens";
    EXPECT_EQ(read->end_of_text(), bpe.end_of_text());
    for (const auto& text : kTexts) EXPECT_EQ(read->encode(text), bpe.encode(text)) << text;
    write_tokenizer(*read, folder / "again.gguf", {.begin = -1, .end = 2, .pad = 0});
    EXPECT_EQ(read_file(folder / "again.gguf"), read_file(folder / "t.gguf"));
  }
}

TEST(GgufTokenizer, RealTokenizersComeBackAsTheyWere) {
  for (const std::string name : {"gpt2", "minimind"}) {
    const fs::path data = testing::shared_data() / "tokenizers" / name;
    SKIP_WITHOUT(data);
    const TempFolder folder;
    const auto tokenizer = load_tokenizer(data);
    write_tokenizer(*tokenizer, folder / "t.gguf", {.end = tokenizer->end_of_text()});
    const auto read = load_tokenizer(folder / "t.gguf");
    EXPECT_EQ(read->fingerprint(), tokenizer->fingerprint()) << name;
    for (const auto& text : kTexts) {
      EXPECT_EQ(read->encode(text), tokenizer->encode(text)) << text;
      EXPECT_EQ(read->encode(text, SpecialText::kParse), tokenizer->encode(text, SpecialText::kParse))
          << text;
    }
    read->save(folder.path());  // as a Hugging Face tokenizer
    EXPECT_EQ(load_tokenizer(folder / "tokenizer.json")->encode(kTexts[3]), tokenizer->encode(kTexts[3]));
  }
}

TEST(GgufTokenizer, SentencePieceComesBackAsItWas) {
  for (const std::string type : {"bpe", "unigram"}) {
    const TempFolder folder;
    const auto tokenizer = testing::byte_fallback_model(type, "<x>,<y>");
    ASSERT_TRUE(tokenizer);
    write_tokenizer(*tokenizer, folder / "t.gguf", {.begin = 1, .end = 2});
    const GgufFile file(folder / "t.gguf");
    EXPECT_EQ(*file.metadata().find("tokenizer.ggml.model")->text(), type == "bpe" ? "llama" : "t5");
    EXPECT_EQ(read_back(folder / "t.gguf")->fingerprint(), tokenizer->fingerprint());
    // Without what only we read, as others write it.
    GgufMetadata others;
    for (const auto& [key, value] : file.metadata().entries())
      if (!key.starts_with("tightloop.")) others.add(key, value);
    write_gguf(folder / "others.gguf", others, {}, [](size_t, const PutBytes&) {});
    const auto read = read_back(folder / "others.gguf");
    EXPECT_EQ(read->end_of_text(), tokenizer->end_of_text());
    for (const std::string text : {"the cat sees a dog", " two  spaces", "Größe 你好 <x>", ""}) {
      EXPECT_EQ(read->encode(text), tokenizer->encode(text)) << type << ": " << text;
      EXPECT_EQ(read->decode(read->encode(text)), tokenizer->decode(tokenizer->encode(text))) << text;
    }
  }
}

TEST(GgufTokenizer, WhatLlamaCppWouldCutOtherwiseIsRefused) {
  const auto refuse = [](const BpeModel& model, const std::string& word) {
    GgufMetadata metadata;
    const auto message = error_of(ExitCode::kUsage, [&] { add_gguf_bpe(model, "", 1000, metadata); });
    EXPECT_NE(message.find(word), std::string::npos) << message;
  };
  refuse(trained_model(SplitPattern::kNanochat), "{1,2}");
  refuse(trained_model(SplitPattern::kNone), "one piece");
  BpeModel model = trained_model(SplitPattern::kGpt2);
  model.splits = {{SplitPattern::kNone, "[a-z]+"}};
  refuse(model, "[a-z]+");
  model = trained_model(SplitPattern::kQwen);
  model.ignore_merges = true;
  refuse(model, "ignore_merges");
  model = trained_model(SplitPattern::kGpt2);
  model.add_prefix_space = true;
  refuse(model, "add_prefix_space");
  model = trained_model(SplitPattern::kGpt2);
  model.tokens.push_back({"<x>", BpeModel::Token::kVerbatim});
  model.tokens.push_back({"<x>", BpeModel::Token::kVerbatim});
  refuse(model, "'<x>' twice");
  GgufMetadata metadata;
  EXPECT_NE(
      error_of(ExitCode::kUsage, [&] { add_gguf_bpe(trained_model(SplitPattern::kGpt2), "", 10, metadata); })
          .find("10 rows"),
      std::string::npos);
}

TEST(GgufTokenizer, ATokenBeforeEachTextIsKept) {
  const TempFolder folder;
  const Bpe bpe(trained_model(SplitPattern::kGpt2), "a test");
  const int32_t begin = *bpe.token_id("<|im_start|>"), end = *bpe.token_id("<|endoftext|>");
  const GgufSpecialTokens special{.begin = begin, .end = end};
  write_tokenizer(bpe, folder / "t.gguf", special, /*adds_begin=*/true);
  const auto read = read_back(folder / "t.gguf");
  EXPECT_TRUE(adds_begin_of_text(*read, begin));
  EXPECT_FALSE(adds_begin_of_text(*read, end));
  EXPECT_FALSE(adds_begin_of_text(bpe, begin));
  EXPECT_EQ(read->chat().token("bos_token"), "<|im_start|>");
  EXPECT_EQ(read->chat().token("eos_token"), "<|endoftext|>");
}

TEST(GgufTokenizer, ListsThatDoNotFitAreRefused) {
  const TempFolder folder;
  write_tokenizer(Bpe(trained_model(SplitPattern::kGpt2), "a test"), folder / "t.gguf", {.end = 0});
  const GgufFile file(folder / "t.gguf");
  const auto count = static_cast<uint32_t>(file.metadata().find("tokenizer.ggml.tokens")->count());
  const auto refuse = [&](const std::string& key, std::optional<GgufValue> value, const std::string& word) {
    GgufMetadata metadata;
    for (const auto& [name, old] : file.metadata().entries())
      if (name != key) metadata.add(name, old);
    if (value) metadata.add(key, *value);
    write_gguf(folder / "bad.gguf", metadata, {}, [](size_t, const PutBytes&) {});
    const auto message = error_of(ExitCode::kCheckpoint, [&] { read_back(folder / "bad.gguf"); });
    EXPECT_NE(message.find(word), std::string::npos) << message;
    EXPECT_NE(message.find("bad.gguf"), std::string::npos) << message;
  };
  const std::string ggml = "tokenizer.ggml.";
  refuse(ggml + "model", {}, "has no tokenizer");
  refuse(ggml + "model", GgufValue::of("rwkv"), "'rwkv'");
  refuse(ggml + "model", GgufValue::of("llama"), "scores");
  refuse(ggml + "pre", GgufValue::of("tekken"), "'tekken'");
  refuse(ggml + "pre", {}, "tokenizer.ggml.pre");
  refuse(ggml + "tokens", {}, "tokens");
  refuse(ggml + "tokens", GgufValue::of(std::vector<std::string>{}), "0 tokens");
  refuse(ggml + "tokens", GgufValue::of(std::vector<std::string>(count, "a")), "not in the vocabulary");
  refuse(ggml + "token_type", GgufValue::of(std::vector<int32_t>{1, 1}), "2 entries");
  refuse(ggml + "token_type", GgufValue::of(std::vector<int32_t>(count, 9)), "is 9");
  refuse(ggml + "merges", {}, "merges");
  refuse(ggml + "merges", GgufValue::of(std::vector<std::string>{"a"}), "'a' is not two");
  refuse(ggml + "merges", GgufValue::of(std::vector<std::string>{"a qq"}), "'qq'");
  refuse(ggml + "eos_token_id", GgufValue::of(count), "ids go from 0 to " + std::to_string(count - 1));
  refuse(ggml + "eos_token_id", GgufValue::of("0"), "no number");
  refuse("tightloop.tokenizer", GgufValue::of("{"), "damaged");
  refuse("tightloop.tokenizer", GgufValue::of("{\"pattern\":\"x\"}"), "damaged");
  refuse("tightloop.tokenizer", GgufValue::of("{\"unknown\":400}"), "damaged");
  refuse("tightloop.tokenizer", GgufValue::of("{\"post_processor\":\"[\"}"), "damaged");
  refuse("tokenizer.chat_template.a/b", GgufValue::of("x"), "a/b");
  refuse("tokenizer.chat_template", GgufValue::of(uint32_t{1}), "is not a text");
}

TEST(GgufTokenizer, NoiseEndsInASentenceOrInATokenizer) {
  const TempFolder folder;
  write_tokenizer(Bpe(trained_model(SplitPattern::kGpt2), "a test"), folder / "bpe", {.begin = 1, .end = 0},
                  true);
  write_tokenizer(*testing::byte_fallback_model("bpe"), folder / "llama", {.begin = 1, .end = 2});
  write_tokenizer(*testing::byte_fallback_model("unigram"), folder / "t5", {.begin = 1, .end = 2});
  uint64_t whole = 0;
  testing::fuzz({read_file(folder / "bpe"), read_file(folder / "llama"), read_file(folder / "t5")},
                testing::fuzz_runs(300), {"gpt2", "llama", "t5", "[PAD3]", "qwen2", std::string(8, '\0')},
                [&](std::string& bytes, Random&) {
                  testing::write_file(folder / "noise.gguf", bytes);
                  try {
                    const auto read = read_back(folder / "noise.gguf");
                    read->decode(read->encode("The cat <x> sees 12 dogs."));
                    ++whole;
                  } catch (const Error& error) {
                    EXPECT_TRUE(error.code() == ExitCode::kCheckpoint || error.code() == ExitCode::kData)
                        << error.what();
                  }
                });
  EXPECT_GT(whole, 0u);
}

}  // namespace
}  // namespace tightloop
