#pragma once

#include <string_view>

namespace tightloop {

/// The text, or an empty one (which no parser of JSON takes) where it nests deeper than anything that we or
/// others write: nlohmann::json copies, compares and writes values by recursion, and a file of a million '['
/// would end the program.
std::string_view shallow_json(std::string_view text);

}  // namespace tightloop
