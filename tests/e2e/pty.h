#pragma once

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>

#include "e2e/program.h"
#include "screen.h"

namespace tightloop::testing {

/// A shell command on a terminal of its own, and what is on the screen. `tightloop` is the program that was
/// built.
class Pty {
 public:
  Pty(const fs::path& folder, const std::string& command, int columns = 80, int rows = 24)
      : screen_(columns, rows, /*line_ends=*/false) {
    winsize size = size_of(columns, rows);
    child_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ > 0) return;
    ::setenv("TERM", "xterm", 1);
    ::unsetenv("NO_COLOR");
    if (::chdir(folder.c_str()) == 0)
      ::execl("/bin/sh", "sh", "-c", ("PATH='" TIGHTLOOP_BINARY_DIR "':$PATH; " + command).c_str(), nullptr);
    ::_exit(127);
  }
  ~Pty() {
    if (child_ > 0) ::kill(child_, SIGKILL), ::waitpid(child_, nullptr, 0);
    ::close(terminal_);
  }
  Pty(const Pty&) = delete;
  Pty& operator=(const Pty&) = delete;

  const Screen& screen() const { return screen_; }
  std::string text() const { return screen_.text(); }
  void send(const std::string& keys) {
    if (::write(terminal_, keys.data(), keys.size()) < 0) ADD_FAILURE() << "the terminal takes no keys";
  }
  void resize(int columns, int rows) {
    const winsize size = size_of(columns, rows);
    ::ioctl(terminal_, TIOCSWINSZ, &size);
    screen_.resize(columns, rows);
  }
  /// Reads what is written until the condition holds, for 3 minutes at most (a busy machine).
  bool until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(3);
    while (!condition())
      if (!read() || std::chrono::steady_clock::now() > end) return condition();
    return true;
  }
  bool until(const std::string& part) {
    return until([&] { return contains(text(), part); });
  }
  /// The exit code, after all of the output.
  int wait() {
    until([] { return false; });
    int status = 0;
    ::waitpid(std::exchange(child_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  static winsize size_of(int columns, int rows) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns), size.ws_row = static_cast<unsigned short>(rows);
    return size;
  }
  /// False once the program has ended.
  bool read() {
    pollfd output{terminal_, POLLIN, 0};
    if (::poll(&output, 1, 100) == 0) return true;
    char buffer[4096];
    const ssize_t got = ::read(terminal_, buffer, sizeof buffer);
    if (got > 0) screen_.write({buffer, static_cast<size_t>(got)});
    return got > 0;
  }

  Screen screen_;
  int terminal_ = -1;
  pid_t child_ = 0;
};

}  // namespace tightloop::testing
