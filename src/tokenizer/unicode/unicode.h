#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tightloop {

/// What the split patterns ask of a character. A byte that is not part of valid UTF-8 counts as kOther.
enum class CharClass : uint8_t {
  kOther = 0,
  kUpper = 1,   // Lu, Lt
  kLower = 2,   // Ll
  kLetter = 3,  // Lm, Lo
  kMark = 4,    // M
  kNumber = 5,  // N
  kSpace = 6,   // White_Space
};

inline bool is_letter(CharClass c) { return c >= CharClass::kUpper && c <= CharClass::kLetter; }

/// Unicode 16.0, as the regex engines of tiktoken 0.14 and Hugging Face tokenizers 0.23 have it
/// (tools/make_unicode_tables.py).
extern const std::span<const uint32_t> kClassRanges;

/// The classes in two steps: 256 code points a block, equal blocks shared.
struct ClassTable {
  std::array<uint8_t, 0x1100> block_of;
  std::array<std::array<CharClass, 256>, 256> blocks;
  CharClass operator()(uint32_t point) const { return blocks[block_of[point >> 8]][point & 255]; }
};
const ClassTable& class_table();

/// One character of UTF-8.
struct Char {
  uint32_t point;   // kInvalid for a byte that is not part of valid UTF-8
  uint32_t length;  // in bytes: 1 to 4
};
inline constexpr uint32_t kInvalid = 0xFFFFFFFF;

/// The character at `p`, which is before `end`. Overlong forms and surrogates are invalid.
inline Char decode_char(const char* p, const char* end) {
  const auto at = [p](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(p[i])); };
  const uint32_t first = at(0);
  if (first < 0x80) return {first, 1};
  const auto follows = [&](int i) { return (at(i) & 0xC0) == 0x80; };
  const auto left = end - p;
  if (first >= 0xE0 && first < 0xF0) {
    if (left < 3 || !follows(1) || !follows(2)) return {kInvalid, 1};
    const uint32_t point = (first & 15) << 12 | (at(1) & 63) << 6 | (at(2) & 63);
    if (point < 0x800 || (point >= 0xD800 && point < 0xE000)) return {kInvalid, 1};
    return {point, 3};
  }
  if (first >= 0xC2 && first < 0xE0) {
    if (left < 2 || !follows(1)) return {kInvalid, 1};
    return {(first & 31) << 6 | (at(1) & 63), 2};
  }
  if (first >= 0xF0 && first < 0xF5) {
    if (left < 4 || !follows(1) || !follows(2) || !follows(3)) return {kInvalid, 1};
    const uint32_t point = (first & 7) << 18 | (at(1) & 63) << 12 | (at(2) & 63) << 6 | (at(3) & 63);
    if (point < 0x10000 || point > 0x10FFFF) return {kInvalid, 1};
    return {point, 4};
  }
  return {kInvalid, 1};
}

bool is_utf8(std::string_view text);

/// Appends a code point as UTF-8.
void append_utf8(std::string& text, uint32_t point);

}  // namespace tightloop
