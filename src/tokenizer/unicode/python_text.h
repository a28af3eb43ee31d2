#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tightloop {

/// What a character becomes in another case: up to three, ended by a zero.
struct CaseMapping {
  uint32_t character;
  std::array<uint32_t, 3> to;
};
// tools/make_unicode_tables.py
extern const std::span<const uint32_t> kPythonTraits;
extern const std::span<const CaseMapping> kUpperCase, kTitleCase, kFoldedCase;

/// What Python 3.11's str says of characters (Unicode 14.0).
namespace python_text {

enum Trait : uint32_t {
  kPrintable = 1,
  kAlpha = 2,
  kDecimal = 4,
  kDigit = 8,
  kNumeric = 16,
  kUpper = 32,
  kLower = 64,
  kTitle = 128,
  kSpace = 256,
  kIdentifierStart = 512,
  kIdentifier = 1024,
};

/// The traits of a code point, one bit each.
uint32_t traits(uint32_t point);
inline bool is_word(uint32_t traits) { return traits & (kAlpha | kDecimal | kDigit | kNumeric); }

// As the methods of str with these names; the text is UTF-8.
std::string upper(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);
std::string swap_case(std::string_view text);
std::string fold_case(std::string_view text);

bool is_upper(std::string_view text);
bool is_lower(std::string_view text);
bool is_title(std::string_view text);
/// Whether there are characters and each has one of these traits.
bool all_have(std::string_view text, uint32_t any_of);

/// The text without white space at its ends.
std::string_view strip(std::string_view text, bool left = true, bool right = true);

}  // namespace python_text

}  // namespace tightloop
