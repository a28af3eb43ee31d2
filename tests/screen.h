#pragma once

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/terminal/line_editor.h"

namespace tightloop::testing {

/// A terminal as far as the program uses one: text, line ends, cursor up, erasing to the end of a line and of
/// the screen. A line that is too long wraps; where the terminal becomes narrower, lines are wrapped anew, as
/// today's terminals do. What scrolled out at the top stays in lines().
class Screen {
 public:
  /// `line_ends`: "\n" also goes to the first column, which a real terminal's driver adds.
  Screen(int columns, int rows, bool line_ends) : columns_(columns), rows_(rows), line_ends_(line_ends) {}

  void write(std::string_view text) {
    held_ += text;
    size_t at = 0;
    while (at < held_.size()) {
      const size_t size = whole(at);
      if (size == 0) break;
      put(std::string_view(held_).substr(at, size));
      at += size;
    }
    held_.erase(0, at);
  }

  void resize(int columns, int rows) {
    std::vector<Row> before = std::exchange(screen_, {Row{}});
    const auto [row, column] = std::pair(row_, column_);
    columns_ = columns, rows_ = rows, row_ = 0, column_ = 0;
    std::pair<int, int> cursor{0, 0};
    for (int i = 0; i < static_cast<int>(before.size()); ++i) {
      for (int j = 0; j < static_cast<int>(before[i].cells.size()); ++j) {
        if (i == row && j == column) cursor = {row_, column_};
        if (!before[i].cells[j].empty()) put(before[i].cells[j]);
      }
      if (i == row && column >= static_cast<int>(before[i].cells.size())) cursor = {row_, column_};
      if (!before[i].wrapped && i + 1 < static_cast<int>(before.size())) put("\r"), put("\n");
    }
    std::tie(row_, column_) = cursor;
  }

  /// All rows without trailing spaces, down to the last that is not empty.
  std::vector<std::string> lines() const {
    std::vector<std::string> found;
    for (const Row& row : screen_) {
      std::string text;
      for (const auto& cell : row.cells) text += cell;
      found.push_back(text.substr(0, text.find_last_not_of(' ') + 1));
    }
    while (!found.empty() && found.back().empty()) found.pop_back();
    return found;
  }
  std::string text() const {
    std::string all;
    for (const auto& line : lines()) all += line + "\n";
    return all;
  }
  int row() const { return row_; }
  int column() const { return column_; }

 private:
  struct Row {
    std::vector<std::string> cells;
    bool wrapped = false;  // goes on in the next
  };

  /// Bytes of the character or escape sequence there; 0: not all of it has come.
  size_t whole(size_t at) const {
    const auto first = static_cast<unsigned char>(held_[at]);
    if (first != 27) {
      const size_t size = first < 0x80 ? 1 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
      return at + size <= held_.size() ? size : 0;
    }
    for (size_t end = at + 2; end < held_.size(); ++end)
      if (std::isalpha(static_cast<unsigned char>(held_[end]))) return end + 1 - at;
    return 0;
  }

  void put(std::string_view piece) {
    if (piece[0] == 27) return escape(piece);
    if (piece == "\r") {
      column_ = 0;
    } else if (piece == "\n") {
      down();
      if (line_ends_) column_ = 0;
    } else if (static_cast<unsigned char>(piece[0]) >= 0x20) {
      character(piece);
    }
  }

  void character(std::string_view piece) {
    const int width = text_width(piece);
    if (column_ + width > columns_) {
      screen_[row_].wrapped = true;
      down(), column_ = 0;
    }
    auto& cells = screen_[row_].cells;
    if (static_cast<int>(cells.size()) < column_ + width) cells.resize(column_ + width, " ");
    cells[column_] = piece;
    for (int i = 1; i < width; ++i) cells[column_ + i].clear();
    column_ += width;
  }

  void escape(std::string_view sequence) {
    const int count = std::max(1, std::atoi(std::string(sequence.substr(2)).c_str()));
    auto& cells = screen_[row_].cells;
    switch (sequence.back()) {
      case 'A':
        row_ = std::max({0, static_cast<int>(screen_.size()) - rows_, row_ - count});
        break;
      case 'J':
        screen_.resize(row_ + 1);
        [[fallthrough]];
      case 'K':
        screen_[row_].wrapped = false;
        if (static_cast<int>(cells.size()) > column_) cells.resize(column_);
        break;
      default:
        break;
    }
  }

  void down() {
    if (++row_ == static_cast<int>(screen_.size())) screen_.emplace_back();
  }

  int columns_, rows_;
  const bool line_ends_;
  std::vector<Row> screen_{Row{}};
  int row_ = 0, column_ = 0;
  std::string held_;
};

}  // namespace tightloop::testing
