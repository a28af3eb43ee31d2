#include "core/terminal/line_editor.h"

#include <gtest/gtest.h>

namespace tightloop {
namespace {

using Event = LineEditor::Event;
constexpr const char *kUp = "\033[A", *kDown = "\033[B", *kRight = "\033[C", *kLeft = "\033[D";

Event type(LineEditor& editor, std::string_view keys) {
  Event last = Event::kNone;
  for (const char key : keys) last = editor.feed(key);
  return last;
}

std::string typed(std::string_view keys) {
  LineEditor editor;
  type(editor, keys);
  return editor.line();
}

TEST(LineEditor, TypesAndCorrects) {
  EXPECT_EQ(typed("hello"), "hello");
  EXPECT_EQ(typed("helo\033[Dl"), "hello");
  EXPECT_EQ(typed("abc\x7f\x7f"), "a");
  EXPECT_EQ(typed("\x7f"), "");
  EXPECT_EQ(typed("abc\x01x\x05y"), "xabcy");
  EXPECT_EQ(typed("one two\x15"), "");
  EXPECT_EQ(typed("one two\033[D\033[D\x0b"), "one t");
  EXPECT_EQ(typed("one two  \x17"), "one ");
  EXPECT_EQ(typed("abc\033[H\033[3~"), "bc");
  EXPECT_EQ(typed("abc\033OH\x04"), "bc");
  EXPECT_EQ(typed("ab\033[99~c"), "abc") << "unknown keys do nothing";
}

TEST(LineEditor, CharactersAreWhole) {
  EXPECT_EQ(typed("日本\x7f"), "日");
  EXPECT_EQ(typed("日本\033[D\033[Dx"), "x日本");
  EXPECT_EQ(typed("é\033[D\033[3~"), "");
  EXPECT_EQ(text_width("日本 é🙂"), 4 + 1 + 1 + 2);
}

TEST(LineEditor, EndsLines) {
  LineEditor editor;
  EXPECT_EQ(type(editor, "one\r"), Event::kLine);
  EXPECT_EQ(editor.finish(), "one");
  EXPECT_EQ(type(editor, "\x04"), Event::kEnd);
  EXPECT_EQ(type(editor, "x\x04"), Event::kNone);
  EXPECT_EQ(type(editor, "\x03"), Event::kInterrupt);
  EXPECT_EQ(editor.line(), "");
}

TEST(LineEditor, ArrowsGoThroughTheHistory) {
  LineEditor editor;
  for (const char* line : {"one\r", "two\r", "two\r", "\r"}) {
    type(editor, line);
    editor.finish();
  }
  type(editor, "draft");
  type(editor, kUp);
  EXPECT_EQ(editor.line(), "two");
  type(editor, kUp);
  EXPECT_EQ(editor.line(), "one");
  type(editor, kUp);
  EXPECT_EQ(editor.line(), "one") << "the first stays";
  type(editor, kDown);
  type(editor, kDown);
  EXPECT_EQ(editor.line(), "draft");
  type(editor, kDown);
  EXPECT_EQ(editor.line(), "draft");
  type(editor, kLeft);
  type(editor, kRight);
  EXPECT_EQ(editor.cursor(), 5u);
}

TEST(LineEditor, ShowsThePartAroundTheCursor) {
  LineEditor editor;
  type(editor, "abc");
  EXPECT_EQ(editor.drawn("> ", 80), "\r\033[K> abc");
  type(editor, kLeft);
  EXPECT_EQ(editor.drawn("> ", 80), "\r\033[K> abc\033[1D");
  type(editor, std::string(100, 'x'));
  for (int i = 0; i < 101; ++i) {
    EXPECT_LE(text_width(editor.drawn("> ", 20).substr(4)), 20 + 5) << i;
    type(editor, kLeft);
  }
  EXPECT_TRUE(editor.drawn("> ", 20).starts_with("\r\033[K> abx"));
}

// Whatever bytes come, the cursor stays inside.
TEST(LineEditor, SurvivesAnyBytes) {
  LineEditor editor;
  uint32_t state = 1;
  for (int i = 0; i < 100'000; ++i) {
    state = state * 1664525 + 1013904223;
    if (editor.feed(static_cast<char>(state >> 24)) == Event::kLine) editor.finish();
    ASSERT_LE(editor.cursor(), editor.line().size());
    if (i % 64 == 0) editor.drawn("> ", 20);
  }
}

}  // namespace
}  // namespace tightloop
