#pragma once

#include <span>
#include <string>

namespace tightloop::cli {

/// Settings with their defaults, a line each, for help.
std::string settings_help(std::span<const char* const> keys);

/// Those that most runs change, for the help of 'train'.
std::string main_settings();

/// For the help of verbs that take settings besides their options.
constexpr const char* kTakesSettings =
    "Any setting can be given, too, as --section.key value; 'tightloop config' lists them.\n";

}  // namespace tightloop::cli
