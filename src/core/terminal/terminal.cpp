#include "core/terminal/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "core/terminal/live_block.h"
#include "core/terminal/plain.h"

namespace tightloop {

namespace {

std::mutex output_mutex;
std::vector<std::string> live_block;
std::string live_line;
LiveBlock drawn;
std::atomic<std::chrono::steady_clock::time_point> last_output{std::chrono::steady_clock::now()};

std::atomic<bool> plain_lines = false;

void put(const std::string& drawn_text) {
  const std::string text = in_locale(drawn_text);
  last_output = std::chrono::steady_clock::now();
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

int size_of_terminal(unsigned short winsize::*side, int otherwise) {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.*side > 0) return size.*side;
  return otherwise;
}

int rows() { return size_of_terminal(&winsize::ws_row, 24); }

void redraw() {
  std::vector<std::string> lines = live_block;
  if (!live_line.empty()) lines.push_back(live_line);
  put(drawn.draw(lines, terminal::columns(), rows()));
}

// The values at `width` evenly spaced points, each the mean of what falls there; non-finite ones are left
// out.
std::vector<double> resample(std::span<const double> values, int width) {
  std::vector<double> finite, out;
  std::ranges::copy_if(values, std::back_inserter(finite), [](double v) { return std::isfinite(v); });
  const size_t points = std::min<size_t>(finite.size(), std::max(width, 1));
  for (size_t i = 0; i < points; ++i) {
    const size_t begin = i * finite.size() / points, end = (i + 1) * finite.size() / points;
    double sum = 0;
    for (size_t j = begin; j < end; ++j) sum += finite[j];
    out.push_back(sum / static_cast<double>(end - begin));
  }
  return out;
}

// Bytes of the character that the text begins with; 0 where they are not UTF-8.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t length = byte(0) < 0x80    ? 1
                        : byte(0) >= 0xF0 ? 4
                        : byte(0) >= 0xE0 ? 3
                        : byte(0) >= 0xC2 ? 2
                                          : 0;
  if (length > text.size() || byte(0) > 0xF4) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  return length;
}

constexpr std::string_view kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

}  // namespace

namespace terminal {

bool is_live() {
  static const bool live = [] {
    const char* term = std::getenv("TERM");
    return ::isatty(STDERR_FILENO) && term && std::string_view(term) != "dumb" && !std::getenv("NO_COLOR");
  }();
  return live && !plain_lines;
}

void use_plain_lines() { plain_lines = true; }

int columns() { return size_of_terminal(&winsize::ws_col, 80); }

void print(const std::string& line) {
  std::lock_guard lock(output_mutex);
  put(drawn.print(line, columns(), rows()));
}

void set_live(const std::string& line) {
  if (!is_live()) return;
  std::lock_guard lock(output_mutex);
  live_line = line;
  redraw();
}

void clear_live() {
  std::lock_guard lock(output_mutex);
  if (live_line.empty()) return;
  live_line.clear();
  redraw();
}

void set_block(const std::vector<std::string>& lines) {
  if (!is_live()) return;
  std::lock_guard lock(output_mutex);
  if (lines.empty() && live_block.empty()) return;
  live_block = lines;
  redraw();
}

double quiet_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - last_output.load()).count();
}

std::string styled(const std::string& text, const char* style) {
  return is_live() ? fmt::format("\033[{}m{}\033[0m", style, text) : text;
}

}  // namespace terminal

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    const size_t length = utf8_length(text);
    const bool c1 = length == 2 && first == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0;
    if (c1) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(text[1]));
    } else if (length == 0 || first == 0x7f || (first < 0x20 && first != '\n' && first != '\t')) {
      out += fmt::format("\\x{:02x}", first);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return out;
}

std::string first_line(std::string_view text) { return printable(text.substr(0, text.find('\n'))); }

bool locale_is_utf8(const char* lc_all, const char* lc_ctype, const char* lang) {
  for (const char* name : {lc_all, lc_ctype, lang}) {
    if (!name || !*name) continue;
    std::string lower(name);
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    return lower.find("utf-8") != lower.npos || lower.find("utf8") != lower.npos;
  }
  return true;
}

std::string drawn_in_ascii(std::string_view text) {
  static constexpr std::pair<std::string_view, char> kInstead[] = {
      {"▁", '_'}, {"▂", '.'}, {"▃", '-'}, {"▄", '~'}, {"▅", '+'}, {"▆", '*'}, {"▇", '%'},
      {"█", '#'}, {"░", '-'}, {"┤", '|'}, {"✓", '+'}, {"✗", 'x'}, {"…", '~'}};
  std::string out;
  while (!text.empty()) {
    const auto found =
        std::ranges::find_if(kInstead, [&](const auto& one) { return text.starts_with(one.first); });
    const bool is_drawn = found != std::end(kInstead);
    out += is_drawn ? found->second : text[0];
    text.remove_prefix(is_drawn ? found->first.size() : 1);
  }
  return out;
}

std::string in_locale(std::string text) {
  static const bool utf8 =
      locale_is_utf8(std::getenv("LC_ALL"), std::getenv("LC_CTYPE"), std::getenv("LANG"));
  return utf8 ? std::move(text) : drawn_in_ascii(text);
}

std::string shell_word(std::string_view word, bool fish) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/+@:,";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) {
    if (fish && (c == '\'' || c == '\\')) quoted += '\\';
    quoted += !fish && c == '\'' ? "'\\''" : std::string(1, c);
  }
  return quoted + "'";
}

std::string human_count(double value) {
  static constexpr const char* units[] = {"", "k", "M", "G", "T"};
  int unit = 0;
  for (; std::abs(value) >= 999.5 && unit < 4; ++unit) value /= 1000;
  if (unit == 0) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}f}{}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, units[unit]);
}

std::string human_seconds(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

std::string human_bytes(double bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string sparkline(std::span<const double> values, int width) {
  const auto points = resample(values, width);
  if (points.empty()) return {};
  const auto [low, high] = std::ranges::minmax(points);
  std::string out;
  for (const double point : points) {
    const double height = high > low ? (point - low) / (high - low) : 0.5;
    out += kBlocks[std::clamp(static_cast<int>(height * 8), 0, 7)];
  }
  return out;
}

std::string chart(std::span<const double> values, int width, int height) {
  const auto points = resample(values, width);
  if (points.empty()) return {};
  const auto [low, high] = std::ranges::minmax(points);
  std::string out;
  for (int line = height - 1; line >= 0; --line) {
    out += fmt::format("{:>9} ┤", line == height - 1 ? fmt::format("{:.3f}", high)
                                  : line == 0        ? fmt::format("{:.3f}", low)
                                                     : "");
    for (const double point : points) {
      const double level = high > low ? (point - low) / (high - low) * (height * 8 - 1) : 0;
      const int eighths = std::clamp(static_cast<int>(level) - line * 8 + 1, 0, 8);
      out += eighths == 0 ? std::string_view(" ") : kBlocks[eighths - 1];
    }
    out += "\n";
  }
  return out;
}

}  // namespace tightloop
