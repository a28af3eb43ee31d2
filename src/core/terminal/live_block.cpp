#include "core/terminal/live_block.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/terminal/line_editor.h"

namespace tightloop {

namespace {

/// Takes a character off the front of a text, or a whole escape sequence (ESC [ ... letter).
std::string_view take_character(std::string_view& text) {
  size_t end = 1;
  if (text[0] == '\033') {
    while (end < text.size() && !std::isalpha(static_cast<unsigned char>(text[end]))) ++end;
    end = std::min(end + 1, text.size());
  } else {
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  }
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end);
  return taken;
}

int character_columns(std::string_view character) {
  return character[0] == '\033' ? 0 : text_width(character);
}

}  // namespace

int shown_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) width += character_columns(take_character(text));
  return width;
}

std::string cut_to(std::string_view text, int columns) {
  std::string out;
  bool styled = false;
  for (int width = 0; !text.empty();) {
    const std::string_view character = take_character(text);
    width += character_columns(character);
    if (width > columns) return styled ? out + "\033[0m" : out;
    styled |= character[0] == '\033';
    out += character;
  }
  return out;
}

std::string shortened(std::string_view text, int columns) {
  return shown_width(text) <= columns ? std::string(text) : cut_to(cut_to(text, columns - 1) + "…", columns);
}

std::string LiveBlock::top(int columns, int rows) const {
  int up = 0;
  for (const int width : widths_) up += std::max(1, (width + columns - 1) / columns);
  up = std::min(up, rows - 1);
  return up > 0 ? fmt::format("\r\033[{}A", up) : widths_.empty() ? "" : "\r";
}

std::string LiveBlock::below(const std::vector<std::string>& lines, int columns, int rows) {
  std::string out;
  widths_.clear();
  for (const std::string& line : lines) {
    if (static_cast<int>(widths_.size()) + 1 >= rows) break;
    // The last column stays free: some terminals wrap as soon as it is written.
    const std::string cut = cut_to(line, columns - 1);
    widths_.push_back(shown_width(cut));
    out += cut + "\033[K\n";
  }
  return out;
}

std::string LiveBlock::draw(const std::vector<std::string>& lines, int columns, int rows) {
  const bool was_drawn = !widths_.empty();
  const std::string to_top = top(columns, rows);
  lines_ = lines;
  return to_top + below(lines_, columns, rows) + (was_drawn ? "\033[J" : "");
}

std::string LiveBlock::print(const std::string& line, int columns, int rows) {
  const std::string to_top = widths_.empty() ? "" : top(columns, rows) + "\033[J";
  return to_top + line + "\n" + below(lines_, columns, rows);
}

}  // namespace tightloop
