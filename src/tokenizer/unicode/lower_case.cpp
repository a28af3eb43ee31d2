#include "tokenizer/unicode/lower_case.h"

#include <algorithm>
#include <vector>

#include "tokenizer/unicode/unicode.h"

namespace tightloop {

namespace {

constexpr uint32_t kCapitalSigma = 0x3A3, kSigma = 0x3C3, kFinalSigma = 0x3C2, kCapitalDottedI = 0x130;

uint32_t lower_case(uint32_t point) {
  if (point < 0x80) return point >= 'A' && point <= 'Z' ? point + 32 : point;
  const auto after = std::ranges::upper_bound(kLowerCaseRanges, point, {}, &LowerCaseRange::first);
  if (after == kLowerCaseRanges.begin()) return point;
  const LowerCaseRange& range = *(after - 1);
  if (point > range.last || (point - range.first) % range.stride != 0) return point;
  return point + static_cast<uint32_t>(range.added);
}

enum class Cased { kNo = 0, kYes = 1, kLookedPast = 2 };

Cased cased(uint32_t point) {
  if (point == kInvalid) return Cased::kNo;
  const auto after =
      std::ranges::upper_bound(kCasedRanges, point, {}, [](uint32_t word) { return word / 4; });
  return static_cast<Cased>(*(after - 1) % 4);  // the first range begins at 0
}

/// Whether a word ends with the sigma at `at`: a cased letter before it and none after, marks left aside.
bool is_final(const std::vector<Char>& characters, size_t at) {
  const auto next_is_cased = [&](auto from, auto to) {
    for (; from != to; ++from)
      if (const Cased c = cased(from->point); c != Cased::kLookedPast) return c == Cased::kYes;
    return false;
  };
  const auto here = characters.begin() + static_cast<std::ptrdiff_t>(at);
  return next_is_cased(std::make_reverse_iterator(here), characters.rend()) &&
         !next_is_cased(here + 1, characters.end());
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::vector<Char> characters;
  for (const char *p = text.data(), *end = p + text.size(); p < end; p += characters.back().length)
    characters.push_back(decode_char(p, end));
  std::string lower;
  lower.reserve(text.size());
  size_t byte = 0;
  for (size_t i = 0; i < characters.size(); byte += characters[i++].length) {
    const uint32_t point = characters[i].point;
    if (point == kInvalid) {
      lower += text[byte];
    } else if (point == kCapitalSigma) {
      append_utf8(lower, is_final(characters, i) ? kFinalSigma : kSigma);
    } else if (point == kCapitalDottedI) {
      lower += "i\xcc\x87";
    } else {
      append_utf8(lower, lower_case(point));
    }
  }
  return lower;
}

}  // namespace tightloop
