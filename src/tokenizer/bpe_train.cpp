#include "tokenizer/bpe_train.h"

#include <algorithm>
#include <queue>
#include <set>

#include "core/error.h"
#include "core/interrupt.h"
#include "tokenizer/bpe.h"
#include "tokenizer/word_count.h"

namespace tightloop {

namespace {

/// All pairs of neighbours in all words: how often each occurs, and in which words.
class Pairs {
 public:
  struct Pair {
    int32_t left, right;
    int64_t count = 0;
    std::vector<uint32_t> words;  // may name words that the pair has left
  };

  Pairs() : slots_(1 << 16, kEmpty) {}

  uint32_t find_or_add(int32_t left, int32_t right) {
    for (size_t i = hash(left, right);; ++i) {
      const uint32_t index = slots_[i & (slots_.size() - 1)];
      if (index == kEmpty) break;
      if (pairs_[index].left == left && pairs_[index].right == right) return index;
    }
    pairs_.push_back({left, right, 0, {}});
    if (pairs_.size() * 2 > slots_.size())
      grow();
    else
      place(static_cast<uint32_t>(pairs_.size() - 1));
    return static_cast<uint32_t>(pairs_.size() - 1);
  }
  Pair& operator[](uint32_t index) { return pairs_[index]; }
  size_t size() const { return pairs_.size(); }

 private:
  static constexpr uint32_t kEmpty = 0xFFFFFFFF;
  size_t hash(int32_t left, int32_t right) const {
    const uint64_t key = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
    return (key * 0x9E3779B97F4A7C15ull) >> 20;
  }
  void place(uint32_t index) {
    size_t i = hash(pairs_[index].left, pairs_[index].right);
    while (slots_[i & (slots_.size() - 1)] != kEmpty) ++i;
    slots_[i & (slots_.size() - 1)] = index;
  }
  void grow() {
    slots_.assign(slots_.size() * 2, kEmpty);
    for (uint32_t i = 0; i < pairs_.size(); ++i) place(i);
  }

  std::vector<uint32_t> slots_;
  std::vector<Pair> pairs_;
};

struct CountedWord {
  size_t begin;
  uint32_t length;
  int64_t count;
};

class BpeTrainer {
 public:
  explicit BpeTrainer(const WordCount& counts) {
    counts.each([&](std::string_view word, int64_t count) {
      words_.push_back({symbols_.size(), static_cast<uint32_t>(word.size()), count});
      for (const char c : word) symbols_.push_back(static_cast<uint8_t>(c));
    });
    for (uint32_t w = 0; w < words_.size(); ++w) {
      if (w % 4096 == 0) throw_if_interrupted();
      for (uint32_t i = 0; i + 1 < words_[w].length; ++i) {
        const int32_t* at = &symbols_[words_[w].begin + i];
        change(at[0], at[1], w, words_[w].count);
      }
    }
    for (uint32_t pair = 0; pair < pairs_.size(); ++pair) queue(pair);
    fresh_.clear();
  }

  /// The most frequent pair, of equals the one with the smallest ids; nothing when none is left.
  bool next(MergeRule& rule, int32_t new_id) {
    while (!queue_.empty()) {
      const Entry top = queue_.top();
      queue_.pop();
      Pairs::Pair& pair = pairs_[top.pair];
      if (pair.count != top.count) {
        queue(top.pair);
        continue;
      }
      rule = {pair.left, pair.right, new_id};
      const std::vector<uint32_t> words = std::move(pair.words);
      for (const uint32_t word : words) merge(word, rule);
      pairs_[top.pair].count = 0;
      for (const uint32_t added : fresh_) queue(added);
      fresh_.clear();
      return true;
    }
    return false;
  }

 private:
  struct Entry {
    int64_t count;
    int32_t left, right;
    uint32_t pair;
    bool operator<(const Entry& other) const {
      if (count != other.count) return count < other.count;
      if (left != other.left) return left > other.left;
      return right > other.right;
    }
  };

  void queue(uint32_t index) {
    const Pairs::Pair& pair = pairs_[index];
    if (pair.count > 0) queue_.push({pair.count, pair.left, pair.right, index});
  }

  void change(int32_t left, int32_t right, uint32_t word, int64_t by) {
    const size_t known = pairs_.size();
    const uint32_t index = pairs_.find_or_add(left, right);
    if (index >= known) fresh_.push_back(index);
    Pairs::Pair& pair = pairs_[index];
    pair.count += by;
    if (by > 0 && (pair.words.empty() || pair.words.back() != word)) pair.words.push_back(word);
  }

  void merge(uint32_t w, const MergeRule& rule) {
    CountedWord& word = words_[w];
    int32_t* const symbols = &symbols_[word.begin];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < word.length;) {
      if (i + 1 < word.length && symbols[i] == rule.left && symbols[i + 1] == rule.right) {
        if (kept > 0) {
          change(symbols[kept - 1], rule.left, w, -word.count);
          change(symbols[kept - 1], rule.result, w, word.count);
        }
        if (i + 2 < word.length) {
          change(rule.right, symbols[i + 2], w, -word.count);
          change(rule.result, symbols[i + 2], w, word.count);
        }
        symbols[kept++] = rule.result;
        i += 2;
      } else {
        symbols[kept++] = symbols[i++];
      }
    }
    word.length = kept;
  }

  std::vector<int32_t> symbols_;
  std::vector<CountedWord> words_;
  Pairs pairs_;
  std::priority_queue<Entry> queue_;
  std::vector<uint32_t> fresh_;  // pairs that came up in this step
};

}  // namespace

std::unique_ptr<Tokenizer> train_bpe(const BpeTrainOptions& options,
                                     const std::function<bool(std::string&)>& next_document) {
  const auto specials = static_cast<int32_t>(options.special_tokens.size());
  if (std::set<std::string>(options.special_tokens.begin(), options.special_tokens.end()).size() !=
      options.special_tokens.size())
    throw usage_error("a special token is named twice.");
  for (const std::string& content : options.special_tokens)
    if (content.empty() || !is_utf8(content))
      throw usage_error("a special token must be text, and not empty.");
  if (options.vocab_size < 256 + specials || options.vocab_size >= kTokenLimit)
    throw usage_error("the vocabulary must have between {} tokens (the bytes and {} special) and {}, not {}.",
                      256 + specials, specials, kTokenLimit - 1, options.vocab_size);
  const auto report = [&](std::string_view phase, size_t done, size_t total) {
    if (options.progress) options.progress(phase, done, total);
  };

  BpeModel model;
  model.splits = {{options.pattern, ""}};
  for (int b = 0; b < 256; ++b)
    model.tokens.push_back({std::string(1, static_cast<char>(b)), BpeModel::Token::kBytes});
  const int32_t merges = options.vocab_size - 256 - specials;
  if (merges > 0) {
    BpeTrainer trainer(count_words(options.pattern, next_document, options.threads,
                                   [&](size_t bytes) { report("counting words", bytes, 0); }));
    report("merging", 0, merges);
    MergeRule rule;
    for (int32_t i = 0; i < merges && trainer.next(rule, 256 + i); ++i) {
      throw_if_interrupted();
      model.merges.push_back(rule);
      model.tokens.push_back(
          {model.tokens[rule.left].bytes + model.tokens[rule.right].bytes, BpeModel::Token::kBytes});
      if (i % 64 == 63) report("merging", i + 1, merges);
    }
    report("merging", merges, merges);
  }
  for (const std::string& content : options.special_tokens) {
    const auto id = static_cast<int32_t>(model.tokens.size());
    model.tokens.push_back({content, BpeModel::Token::kVerbatim});
    model.added.push_back({content, id});
  }
  return std::make_unique<Bpe>(std::move(model), "the trained tokenizer");
}

}  // namespace tightloop
