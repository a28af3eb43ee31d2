#include "tokenizer/merge.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/random.h"
#include "support.h"

namespace tightloop {
namespace {

/// A vocabulary over a few bytes, with rules in an order that need not make sense.
struct Rules {
  std::vector<std::string> tokens;
  std::vector<MergeRule> rules;
  std::array<int32_t, 256> byte_ids{};
  std::vector<uint32_t> lengths;

  Rules(Random& random, int letters, int merges, bool shuffled) {
    for (int b = 0; b < letters; ++b) {
      byte_ids['a' + b] = b;
      tokens.push_back(std::string(1, static_cast<char>('a' + b)));
    }
    std::map<std::string, int32_t> ids;
    for (size_t i = 0; i < tokens.size(); ++i) ids[tokens[i]] = static_cast<int32_t>(i);
    while (static_cast<int>(rules.size()) < merges) {
      const auto left = static_cast<int32_t>(random.below(tokens.size()));
      const auto right = static_cast<int32_t>(random.below(tokens.size()));
      const std::string both = tokens[left] + tokens[right];
      if (both.size() > 12) continue;
      const auto [found, added] = ids.try_emplace(both, static_cast<int32_t>(tokens.size()));
      if (added) tokens.push_back(both);
      const MergeRule rule{left, right, found->second};
      if (std::find(rules.begin(), rules.end(), rule) == rules.end()) rules.push_back(rule);
    }
    if (shuffled)
      for (size_t i = rules.size(); i > 1; --i) std::swap(rules[i - 1], rules[random.below(i)]);
    for (const auto& token : tokens) lengths.push_back(static_cast<uint32_t>(token.size()));
  }

  /// The definition, word for word.
  std::vector<int32_t> slow(const std::string& text) const {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(byte_ids[static_cast<uint8_t>(c)]);
    for (;;) {
      size_t best = rules.size(), where = 0;
      for (size_t i = 0; i + 1 < ids.size(); ++i)
        for (size_t r = 0; r < best; ++r)
          if (rules[r].left == ids[i] && rules[r].right == ids[i + 1]) best = r, where = i;
      if (best == rules.size()) return ids;
      ids[where] = rules[best].result;
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(where) + 1);
    }
  }
};

std::string some_text(Random& random, int letters, size_t length) {
  std::string text;
  while (text.size() < length) {
    const char c = static_cast<char>('a' + random.below(letters));
    text.append(1 + (random.below(4) == 0 ? random.below(9) : 0), c);
  }
  return text.substr(0, length);
}

TEST(Merge, all_ways_do_what_the_definition_says) {
  Random random(3);
  MergeScratch scratch;
  for (int round = 0; round < 150; ++round) {
    const int letters = 1 + static_cast<int>(random.below(4));
    const Rules rules(random, letters, 1 + static_cast<int>(random.below(letters == 1 ? 8 : 40)),
                      round % 2 == 1);
    const MergeTable table(rules.rules, false);
    for (int i = 0; i < 8; ++i) {
      const std::string text = some_text(random, letters, 1 + random.below(i < 6 ? 64 : 200));
      const auto expected = rules.slow(text);
      std::vector<uint32_t> symbols;
      for (const char c : text) symbols.push_back(rules.byte_ids[static_cast<uint8_t>(c)]);
      auto by_heap = symbols;
      by_heap.resize(merge_heap(table, by_heap.data(), by_heap.size(), scratch));
      ASSERT_EQ(std::vector<int32_t>(by_heap.begin(), by_heap.end()), expected) << text;
      if (text.size() <= 64) {
        symbols.resize(merge_short(table, symbols.data(), symbols.size()));
        ASSERT_EQ(std::vector<int32_t>(symbols.begin(), symbols.end()), expected) << text;
      }
      for (const size_t window : {1, 3, 8, 50}) {
        std::vector<int32_t> ids{77};
        merge_long(table, text, rules.byte_ids, rules.lengths, ids, scratch, window);
        ASSERT_EQ(ids[0], 77);
        ids.erase(ids.begin());
        ASSERT_EQ(ids, expected) << text << " by windows of " << window;
      }
    }
  }
}

TEST(Merge, rules_to_one_token_can_share_its_rank) {
  // "aab": a+ab and aa+b both make it. tiktoken takes the leftmost of both, by ranks of their own aa+b waits.
  const std::vector<MergeRule> rules{{0, 1, 2}, {0, 2, 3}, {0, 0, 4}, {4, 1, 3}};
  EXPECT_EQ(MergeTable(rules, true).rank(4, 1), MergeTable(rules, true).rank(0, 2));
  EXPECT_EQ(MergeTable(rules, false).rank(4, 1), 3u);
  EXPECT_EQ(MergeTable(rules, false).rank(1, 1), kNoRank);
}

}  // namespace
}  // namespace tightloop
