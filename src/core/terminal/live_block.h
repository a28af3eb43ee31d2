#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tightloop {

/// Columns that text takes in a terminal: escape sequences take none, East Asian characters and emoji two.
int shown_width(std::string_view text);
/// As much of the text as takes at most so many columns; a style ends where it is cut.
std::string cut_to(std::string_view text, int columns);
/// The same of a sentence: where it is cut it ends in "…".
std::string shortened(std::string_view text, int columns);

/// Lines at the bottom of a terminal that are drawn again in place. The cursor rests on the empty line below
/// them, so that what the terminal echoes (^C) and the shell's prompt after a kill do not end up in them.
/// Says what is to be written, and writes nothing itself. The size of the terminal may be another one at each
/// call: where it became narrower, terminals have wrapped the lines that were too long.
class LiveBlock {
 public:
  /// Draws these lines in place of those before, each cut to the width; those beyond the height are left out.
  std::string draw(const std::vector<std::string>& lines, int columns, int rows);
  /// A line (or several, with line ends) above the block.
  std::string print(const std::string& line, int columns, int rows);

 private:
  /// Goes to the block's first row.
  std::string top(int columns, int rows) const;
  std::string below(const std::vector<std::string>& lines, int columns, int rows);

  std::vector<std::string> lines_;  // as given
  std::vector<int> widths_;         // as drawn
};

}  // namespace tightloop
