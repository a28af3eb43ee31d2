#include "tokenizer/bpe_train.h"

#include <map>

#include "core/files.h"
#include "core/random.h"
#include "support.h"
#include "tokenizer/bpe.h"
#include "tokenizer/tokenizer_config.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;

std::function<bool(std::string&)> documents(const std::vector<std::string>& texts) {
  return [&texts, i = size_t{0}](std::string& document) mutable {
    if (i == texts.size()) return false;
    document = texts[i++];
    return true;
  };
}

/// Sentences of made-up words, some far more frequent than others.
std::vector<std::string> some_documents(uint64_t seed, size_t count) {
  Random random(seed);
  std::vector<std::string> words;
  for (int i = 0; i < 300; ++i) {
    std::string word;
    for (uint64_t length = 1 + random.below(9); length > 0; --length)
      word += static_cast<char>('a' + random.below(7));
    words.push_back(word);
  }
  std::vector<std::string> texts(count);
  for (auto& text : texts)
    for (uint64_t n = random.below(60); n > 0; --n) {
      text += words[random.below(1 + random.below(words.size()))];
      text += random.below(9) == 0 ? ".\n" : random.below(20) == 0 ? " \xE4\xB8\xAD\xE6\x96\x87 " : " ";
    }
  return texts;
}

const BpeModel& model_of(const Tokenizer& tokenizer) { return dynamic_cast<const Bpe&>(tokenizer).model(); }

/// The definition: count all pairs in all words, merge the most frequent, start again.
std::vector<MergeRule> slow_merges(const std::vector<std::string>& texts, int merges) {
  std::map<std::vector<int32_t>, int64_t> words;
  for (const auto& text : texts)
    scan(SplitPattern::kGpt2, text, [&](std::string_view piece) {
      std::vector<int32_t> word;
      for (const char c : piece) word.push_back(static_cast<uint8_t>(c));
      ++words[word];
    });
  std::vector<MergeRule> rules;
  for (int m = 0; m < merges; ++m) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;
    for (const auto& [word, count] : words)
      for (size_t i = 0; i + 1 < word.size(); ++i) counts[{word[i], word[i + 1]}] += count;
    std::pair<int32_t, int32_t> best;
    int64_t most = 0;
    for (const auto& [pair, count] : counts)
      if (count > most) most = count, best = pair;
    if (most == 0) break;
    rules.push_back({best.first, best.second, 256 + m});
    std::map<std::vector<int32_t>, int64_t> merged;
    for (const auto& [word, count] : words) {
      std::vector<int32_t> next;
      for (size_t i = 0; i < word.size(); ++i) {
        if (i + 1 < word.size() && word[i] == best.first && word[i + 1] == best.second) {
          next.push_back(256 + m);
          ++i;
        } else {
          next.push_back(word[i]);
        }
      }
      merged[next] += count;
    }
    words = std::move(merged);
  }
  return rules;
}

TEST(BpeTrain, merges_are_those_of_the_definition) {
  for (const uint64_t seed : {1, 2, 3}) {
    const auto texts = some_documents(seed, 40);
    BpeTrainOptions options;
    options.vocab_size = 257 + 150;
    const auto tokenizer = train_bpe(options, documents(texts));
    EXPECT_EQ(model_of(*tokenizer).merges, slow_merges(texts, 150)) << "seed " << seed;
  }
}

TEST(BpeTrain, repeated_characters_are_counted_as_defined) {
  const std::vector<std::string> texts{"aaaa aaa aaaaaaa ababab babab aaa", "aaaaaaaaaaaaab"};
  BpeTrainOptions options;
  options.vocab_size = 257 + 20;
  EXPECT_EQ(model_of(*train_bpe(options, documents(texts))).merges, slow_merges(texts, 20));
}

TEST(BpeTrain, one_token_a_byte) {
  BpeTrainOptions options;
  options.vocab_size = 257;
  const auto tokenizer = train_bpe(options, documents({}));
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_text(), 256);
  EXPECT_EQ(tokenizer->encode("Hi\n\xFF"), (std::vector<int32_t>{'H', 'i', '\n', 255}));
  EXPECT_EQ(tokenizer->token_id("<|endoftext|>"), 256);
  EXPECT_EQ(tokenizer->token_id("no such token"), std::nullopt);
}

TEST(BpeTrain, does_not_depend_on_threads_or_order) {
  auto texts = some_documents(7, 500);
  texts.push_back(std::string(3 << 20, 'x') + "\n" + std::string(1 << 20, ' ') + "end");
  BpeTrainOptions options;
  options.vocab_size = 600;
  options.threads = 1;
  const auto one = train_bpe(options, documents(texts));
  for (const int threads : {2, 5}) {
    options.threads = threads;
    EXPECT_EQ(train_bpe(options, documents(texts))->fingerprint(), one->fingerprint()) << threads;
  }
  std::reverse(texts.begin(), texts.end());
  EXPECT_EQ(train_bpe(options, documents(texts))->fingerprint(), one->fingerprint());
}

TEST(BpeTrain, stops_when_nothing_is_left_to_merge) {
  const std::vector<std::string> texts{"ab"};
  BpeTrainOptions options;
  options.vocab_size = 1000;
  options.special_tokens = {"<|endoftext|>", "<|user|>"};
  const auto tokenizer = train_bpe(options, documents(texts));
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  EXPECT_EQ(tokenizer->encode("ab"), std::vector<int32_t>{256});
  EXPECT_EQ(tokenizer->encode("<|user|>ab"), (std::vector<int32_t>{258, 256}));
}

TEST(BpeTrain, says_what_is_wrong_with_the_options) {
  BpeTrainOptions options;
  options.vocab_size = 200;
  EXPECT_NE(error_of(ExitCode::kUsage, [&] { train_bpe(options, documents({})); }).find("257"),
            std::string::npos);
  options.vocab_size = 300;
  const std::vector<std::string> kBad[] = {{"<a>", "<a>"}, {""}, {"\xFF"}};
  for (const auto& bad : kBad) {
    options.special_tokens = bad;
    error_of(ExitCode::kUsage, [&] { train_bpe(options, documents({})); });
  }
}

TEST(BpeTrain, reports_progress) {
  const auto texts = some_documents(9, 50);
  BpeTrainOptions options;
  options.vocab_size = 257 + 64;
  std::vector<std::string> phases;
  options.progress = [&](std::string_view phase, size_t, size_t) { phases.emplace_back(phase); };
  train_bpe(options, documents(texts));
  EXPECT_EQ(phases.front(), "counting words");
  EXPECT_EQ(phases.back(), "merging");
}

TEST(BpeTrain, saved_and_loaded_again_is_the_same) {
  const auto texts = some_documents(11, 100);
  for (const auto& [pattern, name, help] : kChoices<SplitPattern>) {
    BpeTrainOptions options;
    options.vocab_size = 400;
    options.pattern = pattern;
    const auto tokenizer = train_bpe(options, documents(texts));
    TempFolder folder;
    tokenizer->save(folder.path());
    const auto loaded = load_tokenizer(folder.path());
    EXPECT_EQ(loaded->fingerprint(), tokenizer->fingerprint()) << name;
    EXPECT_EQ(loaded->vocab_size(), 400);
    for (const auto& text : texts) {
      EXPECT_EQ(loaded->encode(text), tokenizer->encode(text));
      EXPECT_EQ(loaded->decode(loaded->encode(text)), text);
    }
  }
}

TEST(BpeTrain, any_bytes_come_back) {
  const auto texts = some_documents(13, 100);
  BpeTrainOptions options;
  options.vocab_size = 500;
  Random random(17);
  for (const auto pattern :
       {SplitPattern::kGpt2, SplitPattern::kCl100k, SplitPattern::kO200k, SplitPattern::kNone}) {
    options.pattern = pattern;
    const auto tokenizer = train_bpe(options, documents(texts));
    for (int i = 0; i < 500; ++i) {
      std::string bytes;
      for (uint64_t n = random.below(80); n > 0; --n)
        bytes += random.below(3) ? static_cast<char>(random.below(256)) : "abc \n'\xE4\xB8"[random.below(8)];
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(bytes)), bytes);
    }
  }
}

TEST(TokenizerConfig, MarksOfAChatAreReservedWhereThereIsRoom) {
  TokenizerConfig config;
  const std::vector<std::string> all{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  EXPECT_EQ(config.special_tokens_for(4096), all);
  EXPECT_EQ(config.special_tokens_for(259), all);
  EXPECT_EQ(config.special_tokens_for(258), (std::vector<std::string>{"<|endoftext|>"}));
  EXPECT_EQ(config.special_tokens_for(257), (std::vector<std::string>{"<|endoftext|>"}));
  EXPECT_EQ(config.chat_tokens(), (std::vector<std::string>{"<|im_start|>", "<|im_end|>"}));
  config.special_tokens = {"<|endoftext|>", "<|user|>"};  // named by the user: all, or an error
  EXPECT_EQ(config.special_tokens_for(257), config.special_tokens);
}

}  // namespace
}  // namespace tightloop
