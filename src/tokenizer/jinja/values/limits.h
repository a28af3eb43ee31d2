#pragma once

#include <cstdint>

namespace tightloop::jinja {

/// What a template may use. A template is other people's program: one that never ends, or doubles a text for
/// ever, ends with a sentence.
struct JinjaLimits {
  int nesting = 200;                         // of brackets and blocks in a template
  int depth = 2000;                          // of expressions and calls that wait for each other
  int value_depth = 200;                     // of lists in lists
  uint64_t steps = 20'000'000;               // expressions, statements and items; long texts count by length
  uint64_t value_bytes = 64u << 20;          // of one text or list
  uint64_t built_bytes = uint64_t{1} << 29;  // of all that a rendering builds
  uint64_t output_bytes = 64u << 20;
};

}  // namespace tightloop::jinja
