#include "score/bleu.h"

#include <fmt/core.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "core/files.h"
#include "core/random.h"
#include "data/bleu_cases.h"
#include "data/read/line_reader.h"
#include "score/bootstrap.h"
#include "support.h"
#include "tokenizer/unicode/lower_case.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;
using testing::worst_difference;

std::string words(std::string_view sentence, BleuTokens tokens) {
  std::string joined;
  const std::string text = tokenize_for_bleu(sentence, tokens);
  for (const auto word : split_words(text)) (joined += word) += '|';
  return joined;
}

TEST(Bleu, PunctuationIsPartedAsMtevalPartsIt) {
  const auto tokens = BleuTokens::k13a;
  EXPECT_EQ(words("Hello, world!", tokens), "Hello|,|world|!|");
  EXPECT_EQ(words("1,000.5 in 2-3 days.", tokens), "1,000.5|in|2|-|3|days|.|");
  EXPECT_EQ(words("well-known x-2 2-x", tokens), "well-known|x-2|2|-|x|");
  EXPECT_EQ(words("a...b 5. .5 ,5", tokens), "a|.|.|.|b|5|.|.|5|,|5|");
  EXPECT_EQ(words("it's \"&quot;\" &amp;lt; <skipped>x", tokens), "it's|\"|\"|\"|<|x|");
  EXPECT_EQ(words("", tokens), "");
  EXPECT_EQ(words(" \t\u3000 ", tokens), "");
}

TEST(Bleu, ChineseIsCountedByCharacters) {
  EXPECT_EQ(words("我爱Tightloop 2.0。", BleuTokens::kZh), "我|爱|Tightloop|2.0|。|");
  EXPECT_EQ(words("a…b—c", BleuTokens::kZh), "a|…|b|—|c|");  // all from U+2001 to U+2A6D
  EXPECT_EQ(words("😀𠀀 x", BleuTokens::kZh), "😀𠀀|x|");      // nothing above U+FFEF
  EXPECT_EQ(words("ab 我", BleuTokens::kChar), "a|b|我|");
  EXPECT_EQ(words(" a\u00a0b\x1c"
                  "c,d ",
                  BleuTokens::kNone),
            "a|b|c,d|");
}

TEST(Bleu, LowerCaseKnowsScriptsAndTheFinalSigma) {
  EXPECT_EQ(lower_case("ÄÖÜ ẞ ÐÞ Ǆ ДЖ ΑΣ ΣΑΣ. Σ ΑΣΑ İI \xff"), "äöü ß ðþ ǆ дж ας σας. σ ασα i̇i \xff");
}

TEST(Bleu, RunsAreSharedAtMostOnce) {
  const auto counts = count_ngrams(U"aaab", U"aab", 1);
  EXPECT_EQ(counts.hypothesis, 4);
  EXPECT_EQ(counts.reference, 3);
  EXPECT_EQ(counts.shared, 3);
  EXPECT_EQ(count_ngrams(U"ab", U"ab", 3).hypothesis, 0);
}

TEST(Bleu, RunsAgreeWithASlowCount) {
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    std::u32string a, b;
    for (uint64_t i = random.below(12); i > 0; --i) a += U'a' + static_cast<char32_t>(random.below(3));
    for (uint64_t i = random.below(12); i > 0; --i) b += U'a' + static_cast<char32_t>(random.below(3));
    for (size_t n = 1; n <= 4; ++n) {
      std::map<std::u32string, int64_t> ours, theirs;
      for (size_t i = 0; i + n <= a.size(); ++i) ++ours[a.substr(i, n)];
      for (size_t i = 0; i + n <= b.size(); ++i) ++theirs[b.substr(i, n)];
      int64_t shared = 0;
      for (const auto& [run, count] : ours) shared += std::min(count, theirs.contains(run) ? theirs[run] : 0);
      ASSERT_EQ(count_ngrams(a, b, n).shared, shared);
    }
  }
}

TEST(Bleu, ExtremesHaveDefinedScores) {
  const auto score = [](std::string_view hypothesis, std::string_view reference) {
    return corpus_bleu(bleu_counts(hypothesis, reference, {})).score;
  };
  EXPECT_NEAR(score("a b c d e", "a b c d e"), 100, 1e-9);
  EXPECT_EQ(score("", "a b c d"), 0);
  EXPECT_EQ(score("a b c d", ""), 0);
  EXPECT_EQ(score("a b c", "a b c"), 0) << "a corpus without any run of four has no BLEU";
  EXPECT_NEAR(sentence_bleu(bleu_counts("a b c", "a b c", {})).score, 100, 1e-9);
  EXPECT_EQ(chrf(chrf_counts("", "", false)), 0);
  EXPECT_EQ(chrf(chrf_counts("abc", "", false)), 0);
  EXPECT_NEAR(chrf(chrf_counts("a b", "ab", false)), 100, 1e-9) << "white space does not count";
  EXPECT_NEAR(chrf(chrf_counts("\xff\xfe", "\xff\xfe", false)), 100, 1e-9);
}

TEST(Bleu, SignaturesSayHowItWasMade) {
  EXPECT_EQ(bleu_signature({BleuTokens::kZh, true}, false).find("nrefs:1|case:lc|eff:no|tok:zh|smooth:exp|"),
            0u);
  EXPECT_EQ(bleu_signature({}, true).find("nrefs:1|case:mixed|eff:yes|tok:13a|smooth:exp|"), 0u);
}

TEST(Bleu, EqualsSacreBleu) {
  const auto corpora = nlohmann::json::parse(read_file(testing::source_folder() / "tests/golden/bleu.json"));
  ASSERT_GE(corpora.size(), 16u);
  for (const auto& corpus : corpora) EXPECT_LE(worst_difference(corpus), 1e-6) << corpus.dump();
}

/// Cases that tools/compare_bleu.py makes, one a line.
TEST(BleuCases, ScoresAreThoseOfSacreBleu) {
  const char* file = std::getenv("TIGHTLOOP_BLEU_CASES");
  if (!file) GTEST_SKIP() << "run by tools/compare_bleu.py";
  std::map<std::string, std::pair<int, double>> by_kind;
  for (const auto& line : read_lines(file)) {
    const auto corpus = nlohmann::json::parse(line);
    const double difference = worst_difference(corpus);
    EXPECT_LE(difference, 1e-6) << line.substr(0, 1000);
    auto& [count, worst] =
        by_kind[corpus["name"].get<std::string>() + " " + corpus["tokenize"].get<std::string>()];
    ++count, worst = std::max(worst, difference);
  }
  ASSERT_FALSE(by_kind.empty());
  for (const auto& [kind, found] : by_kind)
    fmt::print("{:32} {:4} corpora, largest difference {:.2e}\n", kind, found.first, found.second);
}

TEST(Bootstrap, TellsChanceFromADifference) {
  // Scores are means of numbers that belong to the sentences.
  std::vector<double> first, like_first, better;
  Random random(3);
  for (int i = 0; i < 300; ++i) {
    first.push_back(random.uniform());
    like_first.push_back(first.back() + (random.uniform() - 0.5) * 0.2);
    better.push_back(first.back() + 0.1 + (random.uniform() - 0.5) * 0.2);
  }
  const auto mean_of = [](const std::vector<double>& values) {
    return [&values](std::span<const uint32_t> sentences) {
      double sum = 0;
      for (const uint32_t sentence : sentences) sum += values[sentence];
      return sum / static_cast<double>(sentences.size());
    };
  };
  const auto chance = paired_bootstrap(300, 1000, 1, mean_of(first), mean_of(like_first));
  EXPECT_GT(chance.p_value, 0.05);
  const auto real = paired_bootstrap(300, 1000, 1, mean_of(first), mean_of(better));
  EXPECT_LT(real.p_value, 0.01);
  EXPECT_NEAR(real.second.score - real.first.score, 0.1, 0.02);
  EXPECT_NEAR(real.first.interval, 1.96 * std::sqrt(1.0 / 12 / 300), 0.006);
  EXPECT_NEAR(real.first.mean, real.first.score, 0.01);
  const auto itself = paired_bootstrap(300, 100, 1, mean_of(first), mean_of(first));
  EXPECT_EQ(itself.p_value, 1);
}

TEST(ReadLines, KeepsEmptyLinesAndNamesABrokenOne) {
  const TempFolder folder;
  std::ofstream(folder / "a") << "x\r\n\n y";
  EXPECT_EQ(read_lines(folder / "a"), (std::vector<std::string>{"x", "", " y"}));
  std::ofstream(folder / "b");
  EXPECT_TRUE(read_lines(folder / "b").empty());
  error_of(ExitCode::kData, [&] { read_lines(folder / "missing"); });
}

}  // namespace
}  // namespace tightloop
