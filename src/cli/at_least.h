#pragma once

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <cstdlib>
#include <string>

namespace tightloop::cli {

/// A check for numbers of options. (CLI11's own one names the largest double in its message.)
inline CLI::Validator at_least(double least) {
  const auto check = [least](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && value >= least) return {};
    return fmt::format("'{}' is not a number from {} on", text, least);
  };
  return {check, ""};
}

}  // namespace tightloop::cli
