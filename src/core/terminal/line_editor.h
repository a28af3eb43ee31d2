#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tightloop {

/// A line as it is being typed: what a terminal in raw mode sends goes in, byte by byte, and the line and the
/// cursor's place come out. Arrows, Home, End, Delete and Backspace; Ctrl-A, E, K, U, W; up and down go
/// through the lines before.
class LineEditor {
 public:
  enum class Event { kNone, kLine, kInterrupt, kEnd };

  /// kLine: the line is complete; take it with finish(). kInterrupt: Ctrl-C, the line is thrown away. kEnd:
  /// Ctrl-D on an empty line.
  Event feed(char byte);
  /// Gives the line, remembers it for the arrow keys, and starts a new one.
  std::string finish();

  const std::string& line() const { return line_; }
  size_t cursor() const { return cursor_; }  // in bytes
  /// What to write to show `prompt` and the line in a terminal of this width: a part of the line around the
  /// cursor where it is longer.
  std::string drawn(std::string_view prompt, int columns) const;

 private:
  Event control(char byte);
  void escape(std::string_view sequence);
  void browse(int step);
  size_t before(size_t at) const;
  size_t after(size_t at) const;

  std::string line_, escape_, unfinished_;
  size_t cursor_ = 0;
  std::vector<std::string> history_;
  size_t shown_ = 0;  // which line of the history; its size: the one being typed
};

/// Columns that UTF-8 text takes in a terminal; East Asian characters and emoji take two.
int text_width(std::string_view text);

}  // namespace tightloop
