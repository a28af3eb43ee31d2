#include "core/terminal/line_editor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tightloop {

namespace {

constexpr char kEscape = 27;

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

int character_width(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  uint32_t code = character.size() == 1 ? first : first & (0x7F >> character.size());
  for (size_t i = 1; i < character.size(); ++i) code = code << 6 | (character[i] & 0x3F);
  if (code >= 0x300 && code <= 0x36F) return 0;
  const std::pair<uint32_t, uint32_t> wide[] = {{0x1100, 0x115F}, {0x2E80, 0xA4CF},   {0xAC00, 0xD7A3},
                                                {0xF900, 0xFAFF}, {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
                                                {0xFFE0, 0xFFE6}, {0x1F300, 0x1FAFF}, {0x20000, 0x3FFFD}};
  return std::ranges::any_of(wide, [&](auto range) { return code >= range.first && code <= range.second; })
             ? 2
             : 1;
}

size_t character_end(std::string_view text, size_t at) {
  size_t end = std::min(at + 1, text.size());
  while (end < text.size() && continues(text[end])) ++end;
  return end;
}

}  // namespace

int text_width(std::string_view text) {
  int width = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = character_end(text, at);
    width += character_width(text.substr(at, end - at));
    at = end;
  }
  return width;
}

size_t LineEditor::before(size_t at) const {
  if (at == 0) return 0;
  --at;
  while (at > 0 && continues(line_[at])) --at;
  return at;
}

size_t LineEditor::after(size_t at) const { return character_end(line_, at); }

LineEditor::Event LineEditor::feed(char byte) {
  if (!escape_.empty()) {
    escape_ += byte;
    // ESC [ parameters letter, or ESC O letter.
    const bool opens = escape_.size() == 2 && (byte == '[' || byte == 'O');
    if (!opens && byte >= 0x40 && byte <= 0x7E) escape(std::exchange(escape_, {}));
    return Event::kNone;
  }
  if (static_cast<unsigned char>(byte) < 0x20 || byte == 127) return control(byte);
  line_.insert(cursor_++, 1, byte);
  return Event::kNone;
}

LineEditor::Event LineEditor::control(char byte) {
  const auto key = [](char letter) { return static_cast<char>(letter & 0x1F); };
  if (byte == kEscape) escape_ = byte;
  if (byte == '\r' || byte == '\n') return Event::kLine;
  if (byte == key('C')) {
    line_.clear(), cursor_ = 0, shown_ = history_.size();
    return Event::kInterrupt;
  }
  if (byte == key('D') && line_.empty()) return Event::kEnd;
  if (byte == 127 || byte == key('H')) {
    const size_t from = before(cursor_);
    line_.erase(from, cursor_ - from);
    cursor_ = from;
  }
  if (byte == key('D')) line_.erase(cursor_, after(cursor_) - cursor_);
  if (byte == key('A')) cursor_ = 0;
  if (byte == key('E')) cursor_ = line_.size();
  if (byte == key('K')) line_.erase(cursor_);
  if (byte == key('U')) line_.erase(0, std::exchange(cursor_, 0));
  if (byte == key('W')) {
    const auto word = line_.find_last_not_of(' ', cursor_ ? cursor_ - 1 : 0);
    const auto space = word == std::string::npos ? word : line_.rfind(' ', word);
    const size_t from = std::min(cursor_, space == std::string::npos ? 0 : space + 1);
    line_.erase(from, cursor_ - from);
    cursor_ = from;
  }
  return Event::kNone;
}

void LineEditor::escape(std::string_view sequence) {
  const std::string_view keys = sequence.substr(std::min<size_t>(2, sequence.size()));
  if (keys == "A") browse(-1);
  if (keys == "B") browse(1);
  if (keys == "C") cursor_ = after(cursor_);
  if (keys == "D") cursor_ = before(cursor_);
  if (keys == "H" || keys == "1~") cursor_ = 0;
  if (keys == "F" || keys == "4~") cursor_ = line_.size();
  if (keys == "3~") line_.erase(cursor_, after(cursor_) - cursor_);
}

void LineEditor::browse(int step) {
  if ((step < 0 && shown_ == 0) || (step > 0 && shown_ == history_.size())) return;
  if (shown_ == history_.size()) unfinished_ = line_;
  shown_ += step;
  line_ = shown_ == history_.size() ? unfinished_ : history_[shown_];
  cursor_ = line_.size();
}

std::string LineEditor::finish() {
  if (!line_.empty() && (history_.empty() || history_.back() != line_)) history_.push_back(line_);
  shown_ = history_.size();
  cursor_ = 0;
  unfinished_.clear();
  return std::exchange(line_, {});
}

std::string LineEditor::drawn(std::string_view prompt, int columns) const {
  const int room = std::max(8, columns - text_width(prompt) - 1);
  size_t first = 0, end = line_.size();
  while (text_width(std::string_view(line_).substr(first, cursor_ - first)) > room) first = after(first);
  while (end > cursor_ && text_width(std::string_view(line_).substr(first, end - first)) > room)
    end = before(end);
  const std::string_view shown = std::string_view(line_).substr(first, end - first);
  const int back = text_width(std::string_view(line_).substr(cursor_, end - cursor_));
  return fmt::format("\r\033[K{}{}{}", prompt, shown, back > 0 ? fmt::format("\033[{}D", back) : "");
}

}  // namespace tightloop
