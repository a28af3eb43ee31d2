#include "tokenizer/split.h"

#include <algorithm>

#include "core/random.h"
#include "support.h"
#include "tokenizer/regex_split.h"

namespace tightloop {
namespace {

using Pieces = std::vector<std::string>;

Pieces scanned(SplitPattern pattern, std::string_view text) {
  Pieces pieces;
  scan(pattern, text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

Pieces matched(const RegexSplit& regex, std::string_view text) {
  Pieces pieces;
  regex.split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

constexpr SplitPattern kAll[] = {SplitPattern::kGpt2,  SplitPattern::kCl100k, SplitPattern::kCl100kHf,
                                 SplitPattern::kO200k, SplitPattern::kQwen,   SplitPattern::kNanochat,
                                 SplitPattern::kDigit, SplitPattern::kDigits};

/// One of each kind of character that a pattern tells apart, and what stands at the bounds of the encoding.
const std::vector<std::string> kChars = {" ",
                                         " ",
                                         " ",
                                         "\t",
                                         "\n",
                                         "\r",
                                         "\v",
                                         "\x1c",
                                         "\xC2\x85",
                                         "\xC2\xA0",
                                         "\xE2\x80\xA8",
                                         "\xE3\x80\x80",
                                         "'",
                                         "'",
                                         "s",
                                         "S",
                                         "l",
                                         "L",
                                         "v",
                                         "e",
                                         "R",
                                         "t",
                                         "m",
                                         "d",
                                         "\xC5\xBF",
                                         "a",
                                         "B",
                                         "z",
                                         "\xC3\xA9",
                                         "\xC3\x89",
                                         "\xC7\x85",
                                         "\xCA\xB0",
                                         "\xE4\xB8\xAD",
                                         "\xD7\x90",
                                         "\xCC\x81",
                                         "\xE2\x83\xA3",
                                         "1",
                                         "2",
                                         "\xC2\xBD",
                                         "\xD9\xA1",
                                         "\xE2\x85\xA7",
                                         "/",
                                         ".",
                                         "_",
                                         "\xE2\x80\x99",
                                         "\xF0\x9F\x98\x80",
                                         "\xE2\x80\x8D",
                                         "\xEF\xB8\x8F",
                                         "\xEF\xBF\xBF",
                                         "\xF4\x8F\xBF\xBF",
                                         "\x7F",
                                         std::string(1, '\0'),
                                         "\xEE\x80\x80"};

TEST(Split, scanners_do_what_their_regular_expressions_say) {
  for (const SplitPattern pattern : kAll) {
    const RegexSplit regex{std::string(regex_of(pattern))};
    Random random(static_cast<uint64_t>(pattern));
    for (int i = 0; i < 20000; ++i) {
      std::string text;
      const uint64_t kinds = 2 + random.below(kChars.size() - 1), shift = random.below(kChars.size());
      for (uint64_t n = 1 + random.below(14); n > 0; --n)
        text += kChars[(shift + random.below(kinds)) % kChars.size()];
      ASSERT_EQ(scanned(pattern, text), matched(regex, text)) << regex_of(pattern) << " on '" << text << "'";
    }
  }
}

TEST(Split, long_runs_agree_too) {
  for (const SplitPattern pattern : kAll) {
    const RegexSplit regex{std::string(regex_of(pattern))};
    for (const auto& c : kChars)
      for (const auto& after : {"", "x", " ", "\n", "1"}) {
        std::string text = "b";
        for (int i = 0; i < 70; ++i) text += c;
        text += after;
        ASSERT_EQ(scanned(pattern, text), matched(regex, text)) << regex_of(pattern) << " on " << text;
      }
  }
}

TEST(Split, nothing_is_lost_of_any_bytes) {
  Random random(5);
  for (const SplitPattern pattern : kAll)
    for (int i = 0; i < 3000; ++i) {
      std::string text;
      for (uint64_t n = random.below(40); n > 0; --n) text += static_cast<char>(random.below(256));
      std::string joined;
      for (const auto& piece : scanned(pattern, text)) {
        EXPECT_FALSE(piece.empty());
        joined += piece;
      }
      ASSERT_EQ(joined, text);
    }
}

TEST(Split, bytes_that_are_not_text_are_punctuation) {
  EXPECT_EQ(scanned(SplitPattern::kGpt2, "a\xFF\xFE b"), (Pieces{"a", "\xFF\xFE", " b"}));
  // A surrogate, an overlong slash, and a character that stops in the middle.
  EXPECT_EQ(scanned(SplitPattern::kGpt2, "a\xED\xA0\x80z"), (Pieces{"a", "\xED\xA0\x80", "z"}));
  EXPECT_EQ(scanned(SplitPattern::kGpt2, "a\xC0\xAFz"), (Pieces{"a", "\xC0\xAF", "z"}));
  EXPECT_EQ(scanned(SplitPattern::kGpt2, "a\xE4\xB8"), (Pieces{"a", "\xE4\xB8"}));
}

TEST(Split, known_examples) {
  EXPECT_EQ(scanned(SplitPattern::kGpt2, "I'll go,  now\n\n "),
            (Pieces{"I", "'ll", " go", ",", " ", " now", "\n\n "}));
  EXPECT_EQ(scanned(SplitPattern::kQwen, "x1234"), (Pieces{"x", "1", "2", "3", "4"}));
  EXPECT_EQ(scanned(SplitPattern::kNanochat, "x1234"), (Pieces{"x", "12", "34"}));
  EXPECT_EQ(scanned(SplitPattern::kCl100k, "x1234"), (Pieces{"x", "123", "4"}));
  EXPECT_EQ(scanned(SplitPattern::kCl100k, "a\n  "), (Pieces{"a", "\n  "}));
  EXPECT_EQ(scanned(SplitPattern::kCl100kHf, "a\n  "), (Pieces{"a", "\n", "  "}));
  EXPECT_EQ(scanned(SplitPattern::kO200k, "XMLHttpRequest's"), (Pieces{"XMLHttp", "Request's"}));
}

TEST(Split, names_and_spellings) {
  EXPECT_EQ(choice_named<SplitPattern>("cl100k"), SplitPattern::kCl100k);
  EXPECT_EQ(choice_named<SplitPattern>("gpt7"), std::nullopt);
  EXPECT_EQ(choice_named<SplitPattern>(""), std::nullopt);
  EXPECT_EQ(scanner_for("\\w+"), std::nullopt);
  // tiktoken's own spelling means something else to Hugging Face's engine.
  const char* tiktoken = R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)";
  EXPECT_EQ(scanner_for(tiktoken, true), SplitPattern::kGpt2);
  EXPECT_EQ(scanner_for(tiktoken), std::nullopt);
}

TEST(RegexSplit, keeps_what_is_between_matches_and_bad_bytes) {
  const RegexSplit regex("[0-9]+");
  EXPECT_EQ(matched(regex,
                    "a12b\xFF"
                    "3"),
            (Pieces{"a", "12", "b\xFF", "3"}));
  EXPECT_EQ(matched(RegexSplit("x*"), "axxb"), (Pieces{"a", "xx", "b"}));
  EXPECT_EQ(matched(regex, ""), Pieces{});
}

TEST(RegexSplit, splits_within_splits) {
  const RegexSplit digits("[0-9]+"), spaces("\\s+");
  Pieces pieces;
  digits.split("a b 12 c d3", [&](std::string_view outer) {
    spaces.split(outer, [&](std::string_view inner) { pieces.emplace_back(inner); });
  });
  EXPECT_EQ(pieces, (Pieces{"a", " ", "b", " ", "12", " ", "c", " ", "d", "3"}));
}

TEST(RegexSplit, long_runs_are_matched_and_explosions_stopped) {
  const std::string spaces(4 << 20, ' ');
  EXPECT_EQ(matched(RegexSplit("\\s*[\\r\\n]+|\\s+"), spaces), Pieces{spaces});
  testing::error_of(ExitCode::kData, [] { matched(RegexSplit("(a+)+$"), std::string(64, 'a') + "b"); });
}

TEST(RegexSplit, names_a_pattern_that_does_not_compile) {
  const auto message = testing::error_of(ExitCode::kData, [] { RegexSplit("(a"); });
  EXPECT_NE(message.find("(a"), std::string::npos);
}

}  // namespace
}  // namespace tightloop
