#include "tokenizer/split.h"

namespace tightloop {

namespace {

struct KnownPattern {
  SplitPattern pattern;
  std::string_view regex;  // the first of a pattern is the one we write
  // Hugging Face's engine reads $ as the end of a line and {1,3}+ as a repeated group: other pieces than
  // tiktoken's.
  bool only_tiktoken = false;
};

#define O200K_WORDS(CONTRACTION)                                                                \
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" CONTRACTION \
  R"(?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" CONTRACTION "?"

constexpr KnownPattern kKnown[] = {
    {SplitPattern::kNone, ""},
    {SplitPattern::kGpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kGpt2,
     R"('s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kGpt2,
     R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)", true},
    {SplitPattern::kGpt2, R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kCl100k,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kCl100k,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
     true},
    {SplitPattern::kCl100kHf,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kCl100kHf,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {SplitPattern::kQwen,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kNanochat,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {SplitPattern::kO200k,
     O200K_WORDS(
         "(?i:'s|'t|'re|'ve|'m|'ll|'d)") R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {SplitPattern::kDigit, R"(\p{N})"},
    {SplitPattern::kDigits, R"(\p{N}+)"},
};

}  // namespace

std::optional<SplitPattern> scanner_for(std::string_view regex, bool in_tiktoken) {
  for (const KnownPattern& known : kKnown)
    if (!regex.empty() && known.regex == regex && (in_tiktoken || !known.only_tiktoken)) return known.pattern;
  return std::nullopt;
}

std::string_view regex_of(SplitPattern pattern) {
  for (const KnownPattern& known : kKnown)
    if (known.pattern == pattern) return known.regex;
  return {};
}

}  // namespace tightloop
