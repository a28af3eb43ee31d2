#include "cli/line_input.h"

#include <fmt/format.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/terminal/terminal.h"

namespace tightloop::cli {

namespace {

constexpr size_t kLongestLine = size_t{1} << 26;

// The terminal sends keys as they are pressed, Ctrl-C included, for as long as this lives.
class RawTerminal {
 public:
  RawTerminal() {
    ::tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON);
    raw.c_cc[VMIN] = 1, raw.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  ~RawTerminal() { ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_); }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  termios before_{};
};

}  // namespace

std::optional<LineInput::Line> LineInput::read() {
  for (;;) {
    if (const auto end = buffer_.find('\n', searched_); end != std::string::npos) {
      Line line{buffer_.substr(0, end)};
      buffer_.erase(0, end + 1);
      searched_ = 0;
      if (line.text.ends_with('\r')) line.text.pop_back();
      return line;
    }
    searched_ = buffer_.size();
    if (buffer_.size() > kLongestLine) throw data_error("a line of standard input has more than 64 MiB.");
    if (at_end_) {
      searched_ = 0;
      if (buffer_.empty()) return std::nullopt;
      return Line{std::exchange(buffer_, {})};
    }
    std::array<char, 4096> bytes;
    if (interrupted()) {
      clear_interrupt();
      throw_if_interrupted();  // a signal other than Ctrl-C
      buffer_.clear(), searched_ = 0;
      return Line{{}, /*interrupted=*/true};
    }
    const auto got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      at_end_ = true;
    } else {
      buffer_.append(bytes.data(), static_cast<size_t>(got));
    }
  }
}

bool LineInput::comes_within(std::chrono::milliseconds time) const {
  if (at_end_ || buffer_.find('\n', searched_) != std::string::npos) return true;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, static_cast<int>(time.count())) != 0;
}

void LineInput::draw() const {
  std::string out = editor_.drawn(prompt_, terminal::columns());
  if (const auto at = out.find(prompt_); style_ && at != std::string::npos)
    out.replace(at, prompt_.size(), fmt::format("\033[{}m{}\033[0m", style_, prompt_));
  std::fwrite(out.data(), 1, out.size(), stdout);
  std::fflush(stdout);
}

std::optional<LineInput::Line> LineInput::edit() {
  const RawTerminal raw;
  draw();
  for (;;) {
    throw_if_interrupted();
    char byte = 0;
    const auto got = ::read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    const auto event = editor_.feed(byte);
    if (event == LineEditor::Event::kEnd) return std::nullopt;
    if (event == LineEditor::Event::kNone) {
      draw();
      continue;
    }
    std::fputs("\r\n", stdout);
    std::fflush(stdout);
    if (event == LineEditor::Event::kInterrupt) return Line{{}, /*interrupted=*/true};
    return Line{editor_.finish()};
  }
}

}  // namespace tightloop::cli
