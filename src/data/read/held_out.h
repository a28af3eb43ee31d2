#pragma once

#include <string_view>

#include "core/hash.h"

namespace tightloop {

/// Whether something with this content is held out, when `share` of everything is: a function of the content
/// alone, so that it holds for any order, seed and number of files.
inline bool is_held_out(std::string_view content, double share) {
  return static_cast<double>(hash64(content) >> 11) * 0x1.0p-53 < share;
}

}  // namespace tightloop
