#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "core/terminal/line_editor.h"

namespace tightloop::cli {

/// Lines from standard input: edited, with a history, where a person types at a terminal; as they are from a
/// pipe.
class LineInput {
 public:
  struct Line {
    std::string text;
    bool interrupted = false;  // Ctrl-C while it was being typed; `text` is empty
  };
  /// `prompt` is shown where the line is edited, in a style such as "1;36" (null: plain).
  LineInput(bool edited, std::string prompt, const char* style)
      : edited_(edited), prompt_(std::move(prompt)), style_(style) {}
  /// The next line without its end; nothing after the last. A last line without an end counts.
  std::optional<Line> next() { return edited_ ? edit() : read(); }
  /// Of a pipe: whether bytes, or its end, come before so much time has passed.
  bool comes_within(std::chrono::milliseconds time) const;

 private:
  std::optional<Line> read();
  std::optional<Line> edit();
  void draw() const;

  const bool edited_;
  const std::string prompt_;
  const char* const style_;
  LineEditor editor_;
  std::string buffer_;
  size_t searched_ = 0;  // bytes of it that hold no line end
  bool at_end_ = false;
};

}  // namespace tightloop::cli
