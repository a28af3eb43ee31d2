#pragma once

#include <string>
#include <string_view>

namespace tightloop {

/// What stands for a number that no machine type holds, as JSON.
inline constexpr std::string_view kLargeNumber = "\"<a number that does not fit into 64 bits>\"";

/// JSON allows numbers of any size; the parser refuses those that no machine type holds. Copies `json` with
/// each of them outside of strings replaced by kLargeNumber, so that a record whose number nobody asked for
/// is not lost. False when one of them is not a number by JSON's grammar either.
bool without_large_numbers(std::string_view json, std::string& out);

}  // namespace tightloop
