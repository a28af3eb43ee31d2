#pragma once

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "tokenizer/split_pattern.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop {

/// The scanner that does what a regular expression says to Hugging Face tokenizers (or to tiktoken), where
/// there is one.
std::optional<SplitPattern> scanner_for(std::string_view regex, bool in_tiktoken = false);
/// The regular expression that Hugging Face tokenizers is to be given for it.
std::string_view regex_of(SplitPattern pattern);

/// Finds where the piece ends that begins at a place in one text.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : classes_(class_table()), end_(text.data() + text.size()) {}

  const char* gpt2(const char* p) const {
    const char* q = p;
    if (*p == ' ') {
      if (++q == end_) return q;
    } else if (*p == '\'') {
      if (const char* after = contraction<false>(p)) return after;
    }
    const At at = look(q);
    if (is_letter(at.kind)) return letters(q + at.length);
    if (at.kind == CharClass::kNumber) return numbers(q + at.length, SIZE_MAX);
    if (at.kind != CharClass::kSpace) return others(q + at.length);
    return spaces(p);
  }

  /// Up to `most` numbers, or all that is none.
  const char* digits(const char* p, size_t most) const {
    At at = look(p);
    if (at.kind == CharClass::kNumber) return numbers(p + at.length, most - 1);
    do {
      p += at.length;
    } while (p < end_ && (at = look(p)).kind != CharClass::kNumber);
    return p;
  }

  /// The patterns that follow GPT-4's. kWholeEnd: white space at the end of the text is one piece, newlines
  /// or not.
  template <int kDigits, bool kWholeEnd>
  const char* cl100k(const char* p) const {
    if (*p == '\'') {
      if (const char* after = contraction<true>(p)) return after;
    }
    const At at = look(p);
    if (is_letter(at.kind)) return letters(p + at.length);
    if (at.kind == CharClass::kNumber) return numbers(p + at.length, kDigits - 1);
    const char* q = p + at.length;
    const bool more = q < end_;
    const At next = more ? look(q) : At{CharClass::kOther, 0};
    if (more && is_letter(next.kind) && *p != '\r' && *p != '\n') return letters(q + next.length);
    if (at.kind != CharClass::kSpace) return newlines<false>(others(q));
    if (*p == ' ' && more && !is_number_or_space(next.kind)) return newlines<false>(others(q + next.length));
    return spaces_with_lines<kWholeEnd>(p);
  }

  const char* o200k(const char* p) const {
    const At at = look(p);
    const char* q = p + at.length;
    const bool may_prefix = !is_letter(at.kind) && at.kind != CharClass::kNumber && *p != '\r' && *p != '\n';
    const char* after = nullptr;
    if (may_prefix && q < end_) after = mixed_word(q);
    if (!after && (is_letter(at.kind) || at.kind == CharClass::kMark)) after = mixed_word(p);
    if (!after && may_prefix && q < end_) after = upper_word(q);
    if (!after && (is_letter(at.kind) || at.kind == CharClass::kMark)) after = upper_word(p);
    if (after) {
      if (after < end_ && *after == '\'') {
        if (const char* longer = contraction<true>(after)) return longer;
      }
      return after;
    }
    if (at.kind == CharClass::kNumber) return numbers(q, 2);
    if (at.kind != CharClass::kSpace) return newlines<true>(others(q));
    if (*p == ' ' && q < end_) {
      const At next = look(q);
      if (!is_letter(next.kind) && !is_number_or_space(next.kind))
        return newlines<true>(others(q + next.length));
    }
    return spaces_with_lines<false>(p);
  }

 private:
  struct At {
    CharClass kind;
    uint32_t length;
  };

  static bool is_number_or_space(CharClass c) { return c == CharClass::kNumber || c == CharClass::kSpace; }

  At look(const char* p) const {
    const auto byte = static_cast<uint8_t>(*p);
    if (byte < 0x80) return {classes_.blocks[classes_.block_of[0]][byte], 1};
    const Char c = decode_char(p, end_);
    return {c.point == kInvalid ? CharClass::kOther : classes_(c.point), c.length};
  }

  static bool is_ascii_letter(char c) { return static_cast<uint8_t>((c | 0x20) - 'a') < 26; }

  const char* letters(const char* p) const {
    for (;;) {
#ifdef __AVX2__
      while (end_ - p >= 32) {
        const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        const __m256i low =
            _mm256_sub_epi8(_mm256_or_si256(bytes, _mm256_set1_epi8(0x20)), _mm256_set1_epi8('a'));
        const __m256i is = _mm256_cmpeq_epi8(_mm256_min_epu8(low, _mm256_set1_epi8(25)), low);
        const auto stops = ~static_cast<uint32_t>(_mm256_movemask_epi8(is));
        if (stops != 0) {
          p += __builtin_ctz(stops);
          break;
        }
        p += 32;
      }
#endif
      while (p < end_ && is_ascii_letter(*p)) ++p;
      if (p == end_ || static_cast<uint8_t>(*p) < 0x80) return p;
      const At at = look(p);
      if (!is_letter(at.kind)) return p;
      p += at.length;
    }
  }

  const char* numbers(const char* p, size_t most) const {
    for (; most > 0 && p < end_; --most) {
      const At at = look(p);
      if (at.kind != CharClass::kNumber) break;
      p += at.length;
    }
    return p;
  }

  /// Neither letters nor numbers nor white space.
  const char* others(const char* p) const {
    while (p < end_) {
      const At at = look(p);
      if (is_letter(at.kind) || is_number_or_space(at.kind)) break;
      p += at.length;
    }
    return p;
  }

  template <bool kSlashToo>
  const char* newlines(const char* p) const {
    while (p < end_ && (*p == '\r' || *p == '\n' || (kSlashToo && *p == '/'))) ++p;
    return p;
  }

  /// \s+(?!\S)|\s+ : the last space before a word is left for the word.
  const char* spaces(const char* p) const {
    const char *last = p, *q = p;
    while (q < end_) {
      const At at = look(q);
      if (at.kind != CharClass::kSpace) return last > p ? last : q;
      last = q;
      q += at.length;
    }
    return q;
  }

  /// \s*[\r\n]+|\s+(?!\S)|\s+
  template <bool kWholeEnd>
  const char* spaces_with_lines(const char* p) const {
    const char *last = p, *q = p, *line = nullptr;
    while (q < end_) {
      const At at = look(q);
      if (at.kind != CharClass::kSpace) break;
      if (*q == '\r' || *q == '\n') line = q + 1;
      last = q;
      q += at.length;
    }
    if (kWholeEnd && q == end_) return q;
    if (line) return line;
    if (q == end_) return q;
    return last > p ? last : q;
  }

  /// 's 't 'm 'd 're 've 'll at the apostrophe `p`; where case does not count, the long s (U+017F) is an s.
  template <bool kAnyCase>
  const char* contraction(const char* p) const {
    if (end_ - p < 2) return nullptr;
    const auto lower = [](char c) {
      return kAnyCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    };
    const char first = lower(p[1]);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return p + 2;
    if (end_ - p < 3) return nullptr;
    const char second = lower(p[2]);
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
      return p + 3;
    if (kAnyCase && p[1] == '\xC5' && p[2] == '\xBF') return p + 3;
    return nullptr;
  }

  static bool upper_part(CharClass c) {
    return c == CharClass::kUpper || c == CharClass::kLetter || c == CharClass::kMark;
  }
  static bool lower_part(CharClass c) {
    return c == CharClass::kLower || c == CharClass::kLetter || c == CharClass::kMark;
  }

  /// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ : where nothing lower follows the first run,
  /// it gives back all after its last letter without case.
  const char* mixed_word(const char* p) const {
    const char* caseless_end = nullptr;
    while (p < end_) {
      const At at = look(p);
      if (!upper_part(at.kind)) {
        if (at.kind == CharClass::kLower) return lower_run(p + at.length);
        break;
      }
      p += at.length;
      if (at.kind != CharClass::kUpper) caseless_end = p;
    }
    return caseless_end;
  }

  /// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*
  const char* upper_word(const char* p) const {
    const char* q = p;
    while (q < end_) {
      const At at = look(q);
      if (!upper_part(at.kind)) break;
      q += at.length;
    }
    return q == p ? nullptr : lower_run(q);
  }

  const char* lower_run(const char* p) const {
    while (p < end_) {
      const At at = look(p);
      if (!lower_part(at.kind)) break;
      p += at.length;
    }
    return p;
  }

  const ClassTable& classes_;
  const char* end_;
};

/// Calls emit(piece) for each piece of the text, in order.
template <class Emit>
void scan(SplitPattern pattern, std::string_view text, Emit&& emit) {
  const char* p = text.data();
  const char* const end = p + text.size();
  const Scanner scanner(text);
  const auto each = [&](auto next) {
    while (p < end) {
      const char* after = next(p);
      emit(std::string_view(p, after - p));
      p = after;
    }
  };
  switch (pattern) {
    case SplitPattern::kNone:
      return p < end ? emit(text) : void();
    case SplitPattern::kGpt2:
      return each([&](const char* at) { return scanner.gpt2(at); });
    case SplitPattern::kCl100k:
      return each([&](const char* at) { return scanner.cl100k<3, true>(at); });
    case SplitPattern::kCl100kHf:
      return each([&](const char* at) { return scanner.cl100k<3, false>(at); });
    case SplitPattern::kQwen:
      return each([&](const char* at) { return scanner.cl100k<1, false>(at); });
    case SplitPattern::kNanochat:
      return each([&](const char* at) { return scanner.cl100k<2, false>(at); });
    case SplitPattern::kO200k:
      return each([&](const char* at) { return scanner.o200k(at); });
    case SplitPattern::kDigit:
      return each([&](const char* at) { return scanner.digits(at, 1); });
    case SplitPattern::kDigits:
      return each([&](const char* at) { return scanner.digits(at, SIZE_MAX); });
  }
}

}  // namespace tightloop
