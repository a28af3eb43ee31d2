#include "score/bleu_words.h"

#include <array>
#include <utility>

#include "core/error.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop {

namespace {

// Python counts four separators of ASCII as white space besides those of Unicode.
bool is_space(uint32_t point) {
  if (point < 0x80) return point == ' ' || (point >= 9 && point <= 13) || (point >= 0x1C && point <= 0x1F);
  return point != kInvalid && class_table()(point) == CharClass::kSpace;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_stop(char c) { return c == '.' || c == ','; }

/// ASCII punctuation that is a word of its own wherever it stands.
bool stands_alone(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
         (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

// The ranges of sacreBLEU's table as Python compares them: two of its entries are strings of two characters,
// so that all from U+2001 to U+2A6D counts, and nothing above U+FFEF does.
bool is_chinese(uint32_t point) {
  static constexpr std::array<std::pair<uint32_t, uint32_t>, 17> kRanges{{{0x2001, 0x2A6D},
                                                                          {0x2E80, 0x2EFF},
                                                                          {0x2F00, 0x2FDF},
                                                                          {0x2FF0, 0x303F},
                                                                          {0x3100, 0x312F},
                                                                          {0x31A0, 0x31BF},
                                                                          {0x31C0, 0x31EF},
                                                                          {0x3200, 0x32FF},
                                                                          {0x3300, 0x33FF},
                                                                          {0x3400, 0x4DB5},
                                                                          {0x4E00, 0x9FBB},
                                                                          {0xF900, 0xFA2D},
                                                                          {0xFA30, 0xFA6A},
                                                                          {0xFA70, 0xFAD9},
                                                                          {0xFE10, 0xFE1F},
                                                                          {0xFE30, 0xFE4F},
                                                                          {0xFF00, 0xFFEF}}};
  for (const auto& [first, last] : kRanges)
    if (point >= first && point <= last) return true;
  return false;
}

/// Calls each(character, its bytes).
template <class Each>
void for_characters(std::string_view text, Each&& each) {
  for (size_t i = 0; i < text.size();) {
    const Char c = decode_char(text.data() + i, text.data() + text.size());
    each(c.point, text.substr(i, c.length));
    i += c.length;
  }
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// Replaces what `matches` says of two neighbours by `put(a, b)`, from left to right without overlap.
template <class Matches, class Put>
std::string replace_pairs(std::string_view text, Matches&& matches, Put&& put) {
  std::string result;
  result.reserve(text.size() * 2);
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      put(result, text[i], text[i + 1]);
      ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

/// What 13a and zh have in common. Bytes serve as characters here: all that is looked for is ASCII.
std::string space_punctuation(std::string_view text) {
  std::string spaced;
  for (const char c : text) {
    if (stands_alone(c)) {
      ((spaced += ' ') += c) += ' ';
    } else {
      spaced += c;
    }
  }
  using Out = std::string&;
  spaced = replace_pairs(
      spaced, [](char a, char b) { return !is_digit(a) && is_stop(b); },
      [](Out out, char a, char b) { (((out += a) += ' ') += b) += ' '; });
  spaced = replace_pairs(
      spaced, [](char a, char b) { return is_stop(a) && !is_digit(b); },
      [](Out out, char a, char b) { (((out += ' ') += a) += ' ') += b; });
  return replace_pairs(
      spaced, [](char a, char b) { return is_digit(a) && b == '-'; },
      [](Out out, char a, char b) { (((out += a) += ' ') += b) += ' '; });
}

std::string_view without_spaces_around(std::string_view text) {
  const auto words = split_words(text);
  if (words.empty()) return {};
  return text.substr(static_cast<size_t>(words.front().data() - text.data()),
                     static_cast<size_t>(words.back().data() + words.back().size() - words.front().data()));
}

std::string tokenize_13a(std::string_view sentence) {
  std::string text(sentence);
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  return space_punctuation(" " + text + " ");
}

std::string tokenize_zh(std::string_view sentence) {
  std::string spaced;
  for_characters(without_spaces_around(sentence), [&](uint32_t point, std::string_view bytes) {
    const bool alone = point != kInvalid && is_chinese(point);
    if (alone) spaced += ' ';
    spaced += bytes;
    if (alone) spaced += ' ';
  });
  return space_punctuation(spaced);
}

std::string tokenize_char(std::string_view sentence) {
  std::string spaced;
  for_characters(sentence, [&](uint32_t, std::string_view bytes) { (spaced += bytes) += ' '; });
  return spaced;
}

}  // namespace

std::string tokenize_for_bleu(std::string_view sentence, BleuTokens tokens) {
  // sacreBLEU takes the white space at the end away first, which 13a and zh would see.
  const std::string_view trimmed = without_spaces_around(sentence);
  if (trimmed.empty()) return {};
  sentence = sentence.substr(0, static_cast<size_t>(trimmed.data() + trimmed.size() - sentence.data()));
  switch (tokens) {
    case BleuTokens::kNone:
      break;
    case BleuTokens::k13a:
      return tokenize_13a(sentence);
    case BleuTokens::kZh:
      return tokenize_zh(sentence);
    case BleuTokens::kChar:
      return tokenize_char(sentence);
  }
  return std::string(sentence);
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t at = 0, start = 0;
  const auto end_word = [&] {
    if (at > start) words.push_back(text.substr(start, at - start));
  };
  for_characters(text, [&](uint32_t point, std::string_view bytes) {
    if (is_space(point)) {
      end_word();
      start = at + bytes.size();
    }
    at += bytes.size();
  });
  end_word();
  return words;
}

}  // namespace tightloop
