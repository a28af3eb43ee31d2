#include "tokenizer/jinja/filters/word_wrap.h"

#include "tokenizer/jinja/values/format_number.h"
#include "tokenizer/jinja/values/text_search.h"
#include "tokenizer/unicode/python_text.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop::jinja {

namespace {

using Points = std::vector<std::string_view>;

bool is_blank(std::string_view c) {
  return std::string_view(" \t\n\v\f\r").find(c) != std::string_view::npos;
}
bool is_letter_point(std::string_view c) {
  const uint32_t traits = python_text::traits(decode_char(c.data(), c.data() + c.size()).point);
  return c == "_" || (python_text::is_word(traits) && !(traits & python_text::kDecimal));
}

/// Words and the white space between them; at hyphens a word falls into parts, where letters are around it.
std::vector<Points> chunks_of(const Points& text, bool at_hyphens) {
  std::vector<Points> chunks;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    const bool blank = is_blank(text[at]);
    const auto letter = [&](size_t i) { return i < text.size() && is_letter_point(text[i]); };
    for (; end < text.size() && is_blank(text[end]) == blank; ++end) {
      if (blank || !at_hyphens || text[end - 1] != "-" || end < at + 2) continue;
      const size_t hyphen = end - 1;
      const bool before =
          hyphen >= 2 && letter(hyphen - 1) &&
          (letter(hyphen - 2) || (hyphen >= 3 && text[hyphen - 2] == "-" && letter(hyphen - 3)));
      if (before && letter(end) &&
          (letter(end + 1) || (end + 1 < text.size() && text[end + 1] == "-" && letter(end + 2))))
        break;
    }
    chunks.emplace_back(text.begin() + static_cast<std::ptrdiff_t>(at),
                        text.begin() + static_cast<std::ptrdiff_t>(end));
    at = end;
  }
  return chunks;
}

/// How much of a word that fits no line goes onto one with so much room.
size_t piece_size(const Points& word, size_t room, bool at_hyphens) {
  if (at_hyphens && word.size() > room)
    for (size_t hyphen = room; hyphen-- > 1;)
      if (word[hyphen] == "-")
        for (size_t i = 0; i < hyphen; ++i)
          if (word[i] != "-") return hyphen + 1;
  return std::min(room, word.size());
}

}  // namespace

std::vector<std::string> wrap_words(Run& run, std::string_view text, int64_t width, bool break_long,
                                    bool at_hyphens) {
  if (width <= 0) fail("invalid width {} (must be > 0)", width);
  run.charge(text.size() * sizeof(std::string_view));
  Points points;
  for (size_t at = 0; at < text.size(); at += points.back().size())
    points.push_back(text.substr(at, decode_char(text.data() + at, text.data() + text.size()).length));
  auto chunks = chunks_of(points, at_hyphens);
  const auto most = static_cast<size_t>(width);
  std::vector<std::string> lines;
  for (size_t next = 0; next < chunks.size();) {
    run.step();
    if (!lines.empty() && is_blank(chunks[next][0]) && ++next == chunks.size()) break;
    std::vector<Points> line;
    size_t used = 0;
    while (next < chunks.size() && used + chunks[next].size() <= most) {
      used += chunks[next].size();
      line.push_back(chunks[next++]);
    }
    if (next < chunks.size() && chunks[next].size() > most) {
      if (break_long) {
        Points& word = chunks[next];
        const auto size = static_cast<std::ptrdiff_t>(piece_size(word, most - used, at_hyphens));
        line.emplace_back(word.begin(), word.begin() + size);
        word.erase(word.begin(), word.begin() + size);
        run.step(word.size() / 16);
        if (word.empty()) ++next;
      } else if (line.empty()) {
        line.push_back(chunks[next++]);
      }
    }
    // As in Python, an empty piece of a long word goes in the place of white space before it.
    if (!line.empty() && (line.back().empty() || is_blank(line.back()[0]))) line.pop_back();
    if (line.empty()) continue;
    std::string joined;
    for (const Points& chunk : line)
      for (const std::string_view c : chunk) joined += c;
    lines.push_back(std::move(joined));
  }
  return lines;
}

}  // namespace tightloop::jinja
