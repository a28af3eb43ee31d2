#pragma once

#include <string>
#include <string_view>

namespace tightloop {

/// JSON allows numbers of any size; the parser refuses those that no machine type holds. Copies `json` with
/// every number outside of strings replaced by 0, so that a record whose number nobody asked for is not lost.
/// False when one of them is not a number by JSON's grammar either.
bool without_large_numbers(std::string_view json, std::string& out);

}  // namespace tightloop
