#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tightloop {

/// Code points `first`, `first + stride`, ... `last` become lower case by adding `added`.
struct LowerCaseRange {
  uint32_t first, last, stride;
  int32_t added;
};
extern const std::span<const LowerCaseRange> kLowerCaseRanges;  // tools/make_unicode_tables.py
extern const std::span<const uint32_t> kCasedRanges;

/// Lower case as Python's str.lower() has it, the sigma at the end of a word included. Bytes that are not
/// UTF-8 stay.
std::string lower_case(std::string_view text);

}  // namespace tightloop
