#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tightloop {

/// Another program that is fed lines on its standard input and answers in lines, and that can never hold up
/// who feeds it: what it does not take at once waits in memory, and what finds no room there is dropped and
/// counted. It has a session of its own, so that Ctrl-C does not end it, and none of our open files. Its
/// input ends when this object does, or the process; it then ends by itself. For one thread at a time.
class HelperProcess {
 public:
  /// `messages`: where its standard error goes. `capacity`: bytes that may wait. A usage error where it
  /// cannot be started.
  HelperProcess(const std::vector<std::string>& command, const std::filesystem::path& messages,
                size_t capacity);
  ~HelperProcess();
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  /// Takes a line, unless there is no room or no process any more. Does not wait.
  void send(std::string_view line);
  /// Hands over what waits, as far as it is taken at once.
  void push();
  /// Whole lines that it has written since the last call. Does not wait.
  std::vector<std::string> answers();
  /// How it ended: its exit status, or 128 and the signal that killed it. Nothing while it runs.
  std::optional<int> status();
  /// Hands over what waits and a last line, for which there is always room, ends its input and waits for its
  /// end. False: it still runs.
  bool finish(std::chrono::milliseconds patience, std::string_view last_line = {});

  /// Lines so far that it did not get.
  int64_t dropped() const { return dropped_; }
  pid_t pid() const { return pid_; }

 private:
  const size_t capacity_;
  pid_t pid_ = -1;
  int socket_ = -1;
  bool open_ = true;  // its input
  std::optional<int> status_;
  std::string waiting_, answer_;  // the rest of what was sent; the beginning of an answer
  int64_t dropped_ = 0;
};

}  // namespace tightloop
