#include "cli/key_input.h"

#include <poll.h>
#include <unistd.h>

namespace tightloop::cli {

KeyInput::KeyInput()
    : before_{},
      typed_(::isatty(STDIN_FILENO) && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp() &&
             ::tcgetattr(STDIN_FILENO, &before_) == 0) {
  if (!typed_) return;
  termios keys = before_;
  keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C stays a signal
  keys.c_cc[VMIN] = 1, keys.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
}

KeyInput::~KeyInput() {
  if (typed_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

std::optional<char> KeyInput::wait(std::chrono::milliseconds most) {
  pollfd input{typed_ ? STDIN_FILENO : -1, POLLIN, 0};
  char key = 0;
  if (::poll(&input, 1, static_cast<int>(most.count())) != 1 || ::read(STDIN_FILENO, &key, 1) != 1) return {};
  return key;
}

}  // namespace tightloop::cli
