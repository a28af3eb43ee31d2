#include "core/terminal/terminal.h"

#include <cmath>
#include <cstdio>

#include "core/counted.h"
#include "core/terminal/plain.h"
#include "support.h"

namespace tightloop {
namespace {

TEST(Terminal, NumbersForPeople) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(1234), "1.23k");
  EXPECT_EQ(human_count(999600), "1.00M");
  EXPECT_EQ(human_count(124e6), "124M");
  EXPECT_EQ(human_seconds(59.4), "59s");
  EXPECT_EQ(human_seconds(65), "1m05s");
  EXPECT_EQ(human_seconds(7300), "2h01m");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(0, "step"), "0 steps");
  EXPECT_EQ(counted(1100, "step"), "1100 steps");
  EXPECT_EQ(counted(1.0, "epoch"), "1 epoch");
  EXPECT_EQ(counted(0.5, "epoch"), "0.5 epochs");
}

TEST(Terminal, PrintableTextCannotDriveATerminal) {
  EXPECT_EQ(printable("plain, \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\tand\nlines"),
            "plain, \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\tand\nlines");
  EXPECT_EQ(printable("\033[2J\r\a\b\x7f"), "\\x1b[2J\\x0d\\x07\\x08\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\u009b2J")
      << "C1, as UTF-8";
  EXPECT_EQ(printable("\x9b"
                      "2J\xc3"),
            "\\x9b2J\\xc3")
      << "C1 as a byte, and half a character";
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
}

TEST(Terminal, SparklineSpansLowestToHighest) {
  const std::vector<double> falling{3, 2, 1};
  EXPECT_EQ(sparkline(falling, 3), "█▅▁");
  EXPECT_EQ(drawn_in_ascii(sparkline(falling, 3)), "#+_");
  EXPECT_EQ(sparkline(std::vector<double>{}, 3), "");
  EXPECT_EQ(sparkline(std::vector<double>{NAN, 1, 2}, 9), "▁█") << "what is not a number is left out";
  EXPECT_EQ(sparkline(std::vector<double>{1, 1}, 9), "▅▅");
}

TEST(Terminal, SparklineResamples) {
  std::vector<double> many(1000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<double>(i);
  EXPECT_EQ(sparkline(many, 4), "▁▃▆█");
}

TEST(Terminal, ChartHasItsExtremesOnTheAxis) {
  const auto text = chart(std::vector<double>{4, 2, 1}, 10, 3);
  EXPECT_NE(text.find("4.000"), std::string::npos) << text;
  EXPECT_NE(text.find("1.000"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
}

TEST(Terminal, QuotesWordsThatAShellWouldReadOtherwise) {
  EXPECT_EQ(shell_word("runs/a-1.txt"), "runs/a-1.txt");
  EXPECT_EQ(shell_word(""), "''");
  for (const char* word : {"my run", "a;b", "$HOME", "*.txt", "~", "a=b", "it's a \\"}) {
    const std::string quoted = shell_word(word);
    std::FILE* shell = ::popen(("printf %s " + quoted).c_str(), "r");
    char read[64] = {};
    EXPECT_EQ(std::fread(read, 1, sizeof read - 1, shell), std::string(word).size());
    ::pclose(shell);
    EXPECT_STREQ(read, word) << quoted;
  }
  EXPECT_EQ(shell_word("it's a \\", /*fish=*/true), "'it\\'s a \\\\'");
}

TEST(Terminal, TheLocaleSaysWhetherCharactersAreUtf8) {
  EXPECT_TRUE(locale_is_utf8(nullptr, nullptr, nullptr));
  EXPECT_TRUE(locale_is_utf8(nullptr, "", "de_DE.UTF-8"));
  EXPECT_TRUE(locale_is_utf8(nullptr, "C.utf8", "C")) << "LC_CTYPE counts before LANG";
  EXPECT_FALSE(locale_is_utf8("C", nullptr, "de_DE.UTF-8")) << "LC_ALL before all";
  EXPECT_FALSE(locale_is_utf8(nullptr, nullptr, "POSIX"));
  EXPECT_FALSE(locale_is_utf8(nullptr, nullptr, "de_DE.ISO-8859-1"));
  EXPECT_EQ(drawn_in_ascii("53 %  █░ ü ✓ a…"), "53 %  #- ü + a~");
}

}  // namespace
}  // namespace tightloop
