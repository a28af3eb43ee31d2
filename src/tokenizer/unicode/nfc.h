#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tightloop {

struct CanonicalPair {
  uint32_t character, first, second;
};
struct CanonicalSingle {
  uint32_t character, other;
};
// nfc_tables.cpp
extern const std::span<const CanonicalPair> kCanonicalPairs;
extern const std::span<const uint32_t> kNotComposed;
extern const std::span<const CanonicalSingle> kCanonicalSingles;
extern const std::span<const uint32_t> kCombiningRanges;

/// True where the text is certainly in Normalization Form C already (found quickly; false means "look").
bool surely_nfc(std::string_view text);
/// Normalization Form C, of Unicode 9.0 as in Hugging Face tokenizers. Bytes that are not UTF-8 stay as they
/// are.
std::string to_nfc(std::string_view text);

}  // namespace tightloop
