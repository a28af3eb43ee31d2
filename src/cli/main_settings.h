#pragma once

#include <string>

namespace tightloop::cli {

/// The settings that most runs change, with their defaults, for the help of 'train'.
std::string main_settings();

}  // namespace tightloop::cli
