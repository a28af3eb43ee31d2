#pragma once

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <cmath>
#include <cstdlib>
#include <string>

namespace tightloop::cli {

/// A check for numbers of options. (CLI11's own one names the largest double in its message.)
inline CLI::Validator at_least(double least) {
  const auto check = [least](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && value >= least && std::isfinite(value)) return {};
    return fmt::format("'{}' is not a number from {} on", text, least);
  };
  return {check, ""};
}

/// The same for a range. (CLI11's own one takes "nan" for a number in it.)
inline CLI::Validator between(double least, double most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && value >= least && value <= most) return {};
    return fmt::format("'{}' is not a number from {} to {}", text, least, most);
  };
  return {check, fmt::format("{} to {}", least, most)};
}

}  // namespace tightloop::cli
