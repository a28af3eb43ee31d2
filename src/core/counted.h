#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace tightloop {

/// "1 step", "3 steps", "0.5 epochs": of nouns whose plural has an s.
template <class Number>
std::string counted(Number count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == Number{1} ? "" : "s");
}

}  // namespace tightloop
