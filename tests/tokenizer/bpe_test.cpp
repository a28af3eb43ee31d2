#include "tokenizer/bpe.h"

#include <ctime>
#include <thread>

#include "core/files.h"
#include "core/random.h"
#include "support.h"
#include "tokenizer/bpe_train.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::shared_data;

/// Trained on a few made-up documents; words, digits, Chinese and runs of signs.
std::unique_ptr<Tokenizer> small_tokenizer(SplitPattern pattern = SplitPattern::kGpt2) {
  int left = 50;
  Random random(4);
  BpeTrainOptions options;
  options.vocab_size = 700;
  options.pattern = pattern;
  options.special_tokens = {"<|endoftext|>", "<|user|>"};
  return train_bpe(options, [&](std::string& text) {
    if (left-- == 0) return false;
    text =
        "the cat and the dog are in the garden ====== aaaaaaaaaaaaaaaa 12345 "
        "\xE4\xB8\xAD\xE6\x96\x87\xE5\xAD\x97 ";
    for (int i = 0; i < 60; ++i) text += "etaoin shrdlu\n"[random.below(14)];
    return true;
  });
}

std::string some_bytes(Random& random, size_t most) {
  static const std::string kParts[] = {
      "the",          " cat",         " and", "garden", "\n", "  ",       "==", "aaaa", "12",
      "\xE4\xB8\xAD", "\xE6\x96\x87", "\xE6", "\xFF",   "'s", "<|user|>", "<|", "X"};
  std::string text;
  while (text.size() < most)
    text +=
        random.below(20) ? kParts[random.below(17)] : std::string(1, static_cast<char>(random.below(256)));
  return text;
}

TEST(Bpe, special_tokens_in_text_are_parsed_or_spelled) {
  const auto tokenizer = small_tokenizer();
  const int32_t user = *tokenizer->token_id("<|user|>");
  EXPECT_EQ(tokenizer->encode("<|user|>"), std::vector<int32_t>{user});
  EXPECT_EQ(tokenizer->encode("<|user|>", SpecialText::kParse), std::vector<int32_t>{user});
  const auto spelled = tokenizer->encode("<|user|>", SpecialText::kText);
  EXPECT_GT(spelled.size(), 1u);
  EXPECT_EQ(std::count(spelled.begin(), spelled.end(), user), 0);
  EXPECT_EQ(tokenizer->decode(spelled), "<|user|>");
}

TEST(Bpe, tokens_have_the_bytes_that_they_spell) {
  const auto tokenizer = small_tokenizer();
  const auto bytes = tokenizer->token_bytes();
  ASSERT_EQ(bytes.size(), static_cast<size_t>(tokenizer->vocab_size()));
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    const auto text = tokenizer->decode({&id, 1});
    const bool special = text == "<|endoftext|>" || text == "<|user|>";
    EXPECT_EQ(bytes[id], special ? 0 : static_cast<int32_t>(text.size())) << text;
  }
}

TEST(Bpe, encode_appends) {
  const auto tokenizer = small_tokenizer();
  std::vector<int32_t> ids{1, 2};
  tokenizer->encode("the cat", ids);
  tokenizer->encode("", ids);
  EXPECT_EQ(std::vector<int32_t>(ids.begin() + 2, ids.end()), tokenizer->encode("the cat"));
  EXPECT_EQ(ids[1], 2);
}

TEST(Bpe, decode_names_an_id_that_is_not_there) {
  const auto tokenizer = small_tokenizer();
  for (const int32_t bad : {-1, tokenizer->vocab_size(), INT32_MAX})
    EXPECT_NE(error_of(ExitCode::kData, [&] { tokenizer->decode(std::vector<int32_t>{bad}); })
                  .find(std::to_string(bad)),
              std::string::npos);
}

TEST(Bpe, what_was_encoded_before_changes_nothing) {
  // The cache of words and the cutting of long pieces must not be seen in the ids.
  for (const auto pattern : {SplitPattern::kGpt2, SplitPattern::kNone, SplitPattern::kO200k}) {
    const auto warm = small_tokenizer(pattern);
    const auto& bpe = dynamic_cast<const Bpe&>(*warm);
    Random random(6);
    for (int i = 0; i < 60; ++i) {
      const std::string text = some_bytes(random, 1 + random.below(300));
      const Bpe cold(bpe.model(), "a copy");
      const auto ids = warm->encode(text);
      ASSERT_EQ(ids, cold.encode(text)) << text;
      ASSERT_EQ(warm->decode(ids), text);
    }
  }
}

TEST(Bpe, pieces_are_merged_as_defined) {
  // Each piece by the plain algorithm, without cache and cuts.
  const auto tokenizer = small_tokenizer();
  const BpeModel& model = dynamic_cast<const Bpe&>(*tokenizer).model();
  const MergeTable table(model.merges, false);
  MergeScratch scratch;
  Random random(8);
  for (int i = 0; i < 500; ++i) {
    const std::string text = some_bytes(random, random.below(400));
    std::vector<int32_t> expected;
    scan(SplitPattern::kGpt2, text, [&](std::string_view piece) {
      std::vector<uint32_t> symbols;
      for (const char c : piece) symbols.push_back(static_cast<uint8_t>(c));
      symbols.resize(merge_heap(table, symbols.data(), symbols.size(), scratch));
      expected.insert(expected.end(), symbols.begin(), symbols.end());
    });
    ASSERT_EQ(tokenizer->encode(text, SpecialText::kText), expected) << text;
  }
}

TEST(Bpe, many_threads_give_what_one_gives) {
  const auto tokenizer = small_tokenizer();
  Random random(10);
  std::vector<std::string> texts;
  for (int i = 0; i < 400; ++i) texts.push_back(some_bytes(random, random.below(500)));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  std::vector<std::vector<int32_t>> one, many;
  encode_batch(*tokenizer, views, one, 1);
  for (const int threads : {2, 8}) {
    encode_batch(*tokenizer, views, many, threads);
    EXPECT_EQ(many, one);
  }
  std::vector<std::thread> pool;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    pool.emplace_back([&] {
      for (size_t i = 0; i < texts.size(); ++i) wrong += tokenizer->encode(texts[i]) != one[i];
    });
  for (auto& thread : pool) thread.join();
  EXPECT_EQ(wrong, 0);
}

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(Bpe, time_grows_with_length_and_not_faster) {
  const auto tokenizer = small_tokenizer();
  const auto seconds = [&](const std::string& unit, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += unit;
    std::vector<int32_t> ids;
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      ids.clear();
      const double start = cpu_seconds();
      tokenizer->encode(text, ids);
      best = std::min(best, cpu_seconds() - start);
    }
    return best;
  };
  for (const std::string unit : {"a", "=", "<|", "\n", "the"}) {
    const double small = seconds(unit, 1 << 16), large = seconds(unit, 1 << 20);
    EXPECT_LT(large, 64 * small) << "for '" << unit
                                 << "' repeated";  // 16 times is right, 256 would be quadratic
  }
}

TEST(Bpe, fingerprint_is_of_what_decides_ids) {
  const auto tokenizer = small_tokenizer();
  BpeModel model = dynamic_cast<const Bpe&>(*tokenizer).model();
  EXPECT_EQ(Bpe(model, "other name").fingerprint(), tokenizer->fingerprint());
  auto changed = model;
  changed.parse_added = false;
  EXPECT_NE(Bpe(changed, "").fingerprint(), tokenizer->fingerprint());
  changed = model;
  changed.same_rank = true;
  EXPECT_NE(Bpe(changed, "").fingerprint(), tokenizer->fingerprint());
  changed = model;
  changed.nfc = true;
  EXPECT_NE(Bpe(changed, "").fingerprint(), tokenizer->fingerprint());
  changed = model;
  std::swap(changed.merges[3], changed.merges[4]);
  EXPECT_NE(Bpe(changed, "").fingerprint(), tokenizer->fingerprint());
  changed = model;
  changed.splits[0].pattern = SplitPattern::kQwen;
  EXPECT_NE(Bpe(changed, "").fingerprint(), tokenizer->fingerprint());
}

TEST(Bpe, parts_that_do_not_fit_are_named) {
  BpeModel model = dynamic_cast<const Bpe&>(*small_tokenizer()).model();
  model.merges[0].result = 5;
  EXPECT_NE(error_of(ExitCode::kData, [&] { Bpe(model, "file.json"); }).find("file.json"), std::string::npos);
  model.merges[0].result = 1 << 20;
  error_of(ExitCode::kData, [&] { Bpe(model, "file.json"); });
  model = dynamic_cast<const Bpe&>(*small_tokenizer()).model();
  model.added[0].id = -3;
  error_of(ExitCode::kData, [&] { Bpe(model, "file.json"); });
  model = dynamic_cast<const Bpe&>(*small_tokenizer()).model();
  model.added.clear();
  model.tokens.resize(300);
  model.merges.resize(300 - 256);
  error_of(ExitCode::kData, [&] { Bpe(model, "no end").end_of_text(); });
}

TEST(Bpe, bytes_that_the_vocabulary_lacks_are_dropped_or_unknown) {
  BpeModel model = dynamic_cast<const Bpe&>(*small_tokenizer()).model();
  model.tokens[0xFF] = {"<unk>", BpeModel::Token::kVerbatim};
  EXPECT_EQ(Bpe(model, "").encode("z\xFF"
                                  "z"),
            (std::vector<int32_t>{'z', 'z'}));
  model.unknown = 0xFF;
  EXPECT_EQ(Bpe(model, "").encode("z\xFF"
                                  "z"),
            (std::vector<int32_t>{'z', 255, 'z'}));
}

TEST(Bpe, ignore_merges_takes_whole_tokens) {
  BpeModel model = dynamic_cast<const Bpe&>(*small_tokenizer()).model();
  const auto id = static_cast<int32_t>(model.tokens.size());
  model.tokens.push_back({"zqzq", BpeModel::Token::kBytes});  // no merge makes it
  EXPECT_EQ(Bpe(model, "").encode("zqzq").size(), 4u);
  model.ignore_merges = true;
  const Bpe bpe(model, "");
  EXPECT_EQ(bpe.encode("zqzq"), std::vector<int32_t>{id});
  EXPECT_EQ(bpe.encode("zqzqzqzq").size(), 8u);
  EXPECT_EQ(bpe.encode("zqzq\xFE").size(), 2u);  // punctuation is a piece of its own
}

TEST(Bpe, real_vocabularies_give_known_ids) {
  SKIP_WITHOUT(shared_data() / "tokenizers" / "gpt2");
  const auto gpt2 = load_tokenizer(shared_data() / "tokenizers" / "gpt2");
  EXPECT_EQ(gpt2->vocab_size(), 50257);
  EXPECT_EQ(gpt2->end_of_text(), 50256);
  EXPECT_EQ(gpt2->encode("Hello world"), (std::vector<int32_t>{15496, 995}));
  EXPECT_EQ(gpt2->encode("<|endoftext|>").size(), 7u);  // a GPT-2 folder spells it
  EXPECT_EQ(gpt2->encode("<|endoftext|>", SpecialText::kParse), std::vector<int32_t>{50256});
  const auto minimind = load_tokenizer(shared_data() / "tokenizers" / "minimind");
  EXPECT_EQ(minimind->vocab_size(), 6400);
  EXPECT_EQ(minimind->encode("<|im_start|>"), std::vector<int32_t>{1});
  testing::TempFolder folder;
  gpt2->save(folder.path());
  const auto saved = load_tokenizer(folder.path());
  EXPECT_EQ(saved->fingerprint(), gpt2->fingerprint());
  EXPECT_EQ(saved->encode("a<|endoftext|>b"), gpt2->encode("a<|endoftext|>b"));
}

}  // namespace
}  // namespace tightloop
