#pragma once

#include <string>
#include <string_view>

namespace tightloop {

// Where a terminal can show less than blocks that are redrawn and the characters that curves are drawn of.

namespace terminal {

/// From now on nothing is live: several processes write to one terminal, and none knows what others wrote.
void use_plain_lines();

}  // namespace terminal

/// Whether characters are UTF-8 by what LC_ALL, LC_CTYPE and LANG name, the first of them that is set. Where
/// none is, as in most containers, they are.
bool locale_is_utf8(const char* lc_all, const char* lc_ctype, const char* lang);
/// With the characters that bars and curves are drawn of in ASCII, as many of them.
std::string drawn_in_ascii(std::string_view text);
/// The same where the locale of this process is not UTF-8; else the text as it is.
std::string in_locale(std::string text);

}  // namespace tightloop
