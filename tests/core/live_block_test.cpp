#include "core/terminal/live_block.h"

#include "screen.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::Screen;
using Lines = std::vector<std::string>;

/// A block on a screen of some size.
struct BlockOnScreen {
  explicit BlockOnScreen(int width, int height = 24) : columns(width), rows(height) {}
  void draw(const Lines& lines) { screen.write(block.draw(lines, columns, rows)); }
  void print(const std::string& line) { screen.write(block.print(line, columns, rows)); }
  void resize(int width, int height = 24) {
    columns = width, rows = height;
    screen.resize(columns, rows);
  }

  int columns, rows;
  LiveBlock block;
  Screen screen{columns, rows, /*line_ends=*/true};
};

TEST(LiveBlock, WidthsOfStylesAndWideCharacters) {
  EXPECT_EQ(shown_width("\033[1;31mred\033[0m"), 3);
  EXPECT_EQ(shown_width("日本 ▇"), 6);
  EXPECT_EQ(cut_to("abc", 3), "abc");
  EXPECT_EQ(cut_to("\033[36mabcd\033[0m", 2), "\033[36mab\033[0m");
  EXPECT_EQ(cut_to("日本", 3), "日") << "no half of a character";
  EXPECT_EQ(cut_to("", 3), "");
}

TEST(LiveBlock, IsDrawnInPlaceWithTheCursorBelow) {
  BlockOnScreen on(20);
  on.print("before");
  on.draw({"one", "two"});
  on.draw({"1", "2", "3"});
  EXPECT_EQ(on.screen.lines(), (Lines{"before", "1", "2", "3"}));
  EXPECT_EQ(on.screen.row(), 4);
  EXPECT_EQ(on.screen.column(), 0);
  on.draw({"a"});
  EXPECT_EQ(on.screen.lines(), (Lines{"before", "a"})) << "nothing is left of a longer one";
  on.draw({});
  EXPECT_EQ(on.screen.lines(), (Lines{"before"}));
  on.print("after");
  EXPECT_EQ(on.screen.lines(), (Lines{"before", "after"}));
}

TEST(LiveBlock, OtherLinesGoAboveIt) {
  BlockOnScreen on(10);
  on.draw({"one", "two"});
  on.print("a warning that is longer than a line");
  on.print("several\nlines");
  EXPECT_EQ(on.screen.lines(),
            (Lines{"a warning", "that is lo", "nger than", "a line", "several", "lines", "one", "two"}));
}

TEST(LiveBlock, WhatTheTerminalEchoesGoesAway) {
  BlockOnScreen on(10);
  on.draw({"one", "two"});
  on.screen.write("^C");
  EXPECT_EQ(on.screen.lines(), (Lines{"one", "two", "^C"}));
  on.print("stopping");
  EXPECT_EQ(on.screen.lines(), (Lines{"stopping", "one", "two"}));
}

TEST(LiveBlock, ASentenceThatIsCutEndsInDots) {
  EXPECT_EQ(shortened("12345", 5), "12345");
  EXPECT_EQ(shortened("123456", 5), "1234…");
  EXPECT_EQ(shortened("日本語", 5), "日本…");
  EXPECT_EQ(shortened("12", 1), "…");
  EXPECT_EQ(shortened("12", 0), "");
}

TEST(LiveBlock, LinesAreCutToTheWidth) {
  BlockOnScreen on(6);
  on.draw({"123456789", "日本語語", "\033[36m▇▇▇▇▇▇▇▇\033[0m"});
  EXPECT_EQ(on.screen.lines(), (Lines{"12345", "日本", "▇▇▇▇▇"}));
}

TEST(LiveBlock, ATerminalThatBecomesNarrowerOrWiderHasNoRemains) {
  BlockOnScreen on(40);
  on.print("before");
  const std::string long_line(38, 'x');
  on.draw({long_line, "two", long_line});
  on.resize(10);
  EXPECT_GT(on.screen.lines().size(), 8u) << "the terminal has wrapped them";
  on.draw({"1", "2"});
  EXPECT_EQ(on.screen.lines(), (Lines{"before", "1", "2"}));
  on.draw({long_line, "2"});
  EXPECT_EQ(on.screen.lines(), (Lines{"before", "xxxxxxxxx", "2"}));
  on.resize(40);
  on.print("more");
  EXPECT_EQ(on.screen.lines(), (Lines{"before", "more", long_line, "2"})) << "the whole line is known";
  on.resize(12);
  on.print("again");
  EXPECT_EQ(on.screen.lines(), (Lines{"before", "more", "again", "xxxxxxxxxxx", "2"}));
}

TEST(LiveBlock, ATerminalWithFewRowsShowsTheFirstLines) {
  BlockOnScreen on(20, 3);
  for (int i = 0; i < 3; ++i) on.draw({"1", "2", "3", "4"});
  EXPECT_EQ(on.screen.lines(), (Lines{"1", "2"}));
  on.resize(20, 1);
  on.draw({"1"});
  on.resize(20, 24);
  on.draw({"1", "2", "3", "4"});
  const auto lines = on.screen.lines();
  ASSERT_GE(lines.size(), 4u);
  EXPECT_EQ(Lines(lines.end() - 4, lines.end()), (Lines{"1", "2", "3", "4"}));
}

}  // namespace
}  // namespace tightloop
