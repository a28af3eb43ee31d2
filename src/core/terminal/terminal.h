#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tightloop {

/// Where people read: standard error. At the bottom, a block of lines and one live line below it may be
/// redrawn; whole lines go above them. Safe from any thread.
namespace terminal {

/// Standard error is a terminal that understands cursor movement (and NO_COLOR/TERM=dumb do not say
/// otherwise).
bool is_live();
int columns();
/// Prints a whole line, above what is live.
void print(const std::string& line);
/// Replaces the live line (cut to the width of the terminal). Does nothing where is_live() is false.
void set_live(const std::string& line);
/// Removes the live line.
void clear_live();
/// Replaces the block above the live line; no lines: it goes. Does nothing where is_live() is false.
void set_block(const std::vector<std::string>& lines);
/// Since anything was printed or drawn, or since the program began.
double quiet_seconds();
/// Wraps text in an ANSI style ("1" bold, "2" dim, "31" red, ...) where is_live().
std::string styled(const std::string& text, const char* style);

}  // namespace terminal

/// Text that can do nothing to a terminal: control characters (but for line ends and tabs) and bytes that are
/// not UTF-8 are spelled out, such as \\x1b. For data, names of files and messages that quote them.
std::string printable(std::string_view text);
/// The same of a message's first line: what torch throws goes on with where it was thrown.
std::string first_line(std::string_view text);

/// A word of a command that a user may copy, such as the name of a file: in single quotes where a shell would
/// read it otherwise. bash, zsh and others; `fish` has its own rule for quotes inside.
std::string shell_word(std::string_view word, bool fish = false);

/// 1234567 -> "1.23M".
std::string human_count(double value);
/// 65 -> "1m05s".
std::string human_seconds(double seconds);
/// 1536 -> "1.5 KiB".
std::string human_bytes(double bytes);

/// A curve in one line of block characters, lowest value to highest, resampled to at most `width` characters.
std::string sparkline(std::span<const double> values, int width);
/// A curve in `height` lines with a labelled axis.
std::string chart(std::span<const double> values, int width, int height);

}  // namespace tightloop
