#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <string>
#include <utility>

namespace tightloop {

/// Messages for people, written by a thread of their own: a call costs a queue push. They go to the terminal
/// and, once to_file() was called, to a file as well.
namespace log {

enum class Level { kDebug, kInfo, kWarning, kError };

void write(Level level, std::string message);
/// From here on messages also go to this file, with time and level.
void to_file(const std::filesystem::path& path);
/// Terminal messages below this level are left out (the file has all of them).
void set_terminal_level(Level level);
/// Whether the terminal gets messages of this level.
bool terminal_shows(Level level);
/// Waits until everything so far is written, then stops the thread. Called once, at the end of the program.
void shut_down();

template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace log
}  // namespace tightloop
