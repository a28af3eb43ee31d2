#pragma once

#include <termios.h>

#include <chrono>
#include <optional>

namespace tightloop::cli {

/// Single keys, as they are pressed, for as long as this lives; nothing where standard input is no terminal,
/// or not this program's (it runs in the background).
class KeyInput {
 public:
  KeyInput();
  ~KeyInput();
  KeyInput(const KeyInput&) = delete;
  KeyInput& operator=(const KeyInput&) = delete;

  /// Waits for a key for at most so long; a signal ends the waiting.
  std::optional<char> wait(std::chrono::milliseconds most);

 private:
  termios before_;
  bool typed_;
};

}  // namespace tightloop::cli
