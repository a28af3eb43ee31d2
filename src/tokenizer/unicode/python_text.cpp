#include "tokenizer/unicode/python_text.h"

#include <algorithm>

#include "tokenizer/unicode/lower_case.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop::python_text {

namespace {

template <class Body>
void each_char(std::string_view text, Body&& body) {
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const Char c = decode_char(p, end);
    body(c.point, std::string_view(p, c.length));
    p += c.length;
  }
}

bool append_mapped(std::string& text, std::span<const CaseMapping> table, uint32_t point) {
  const auto found = std::ranges::lower_bound(table, point, {}, &CaseMapping::character);
  if (found == table.end() || found->character != point) return false;
  for (const uint32_t to : found->to)
    if (to) append_utf8(text, to);
  return true;
}

void append_upper(std::string& text, uint32_t point, std::string_view bytes) {
  if (!append_mapped(text, kUpperCase, point)) text += bytes;
}

void append_title(std::string& text, uint32_t point, std::string_view bytes) {
  if (!append_mapped(text, kTitleCase, point)) append_upper(text, point, bytes);
}

bool is_cased(uint32_t traits) { return traits & (kUpper | kLower | kTitle); }

}  // namespace

uint32_t traits(uint32_t point) {
  if (point > 0x10FFFF) return 0;
  const auto after =
      std::ranges::upper_bound(kPythonTraits, point, {}, [](uint32_t word) { return word / 2048; });
  return *(after - 1) % 2048;  // the first range begins at 0
}

std::string upper(std::string_view text) {
  std::string result;
  each_char(text, [&](uint32_t point, std::string_view bytes) { append_upper(result, point, bytes); });
  return result;
}

std::string title(std::string_view text) {
  // The letters after the first of a word are lowered together: a sigma at the end is another one.
  const std::string lowered = lower_case(text);
  std::string result;
  bool in_word = false;
  size_t at = 0;
  each_char(text, [&](uint32_t point, std::string_view bytes) {
    // Lower case has one character for each, but for a capital I with a dot, which becomes two.
    size_t length = 0;
    for (int n = point == 0x130 ? 2 : 1; n > 0 && at + length < lowered.size(); --n)
      length += decode_char(lowered.data() + at + length, lowered.data() + lowered.size()).length;
    if (in_word)
      result += lowered.substr(at, length);
    else
      append_title(result, point, bytes);
    at += length;
    in_word = is_cased(traits(point));
  });
  return result;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const Char first = decode_char(text.data(), text.data() + text.size());
  std::string result;
  append_title(result, first.point, text.substr(0, first.length));
  const std::string lowered = lower_case(text);
  size_t skipped = 0;
  for (int n = first.point == 0x130 ? 2 : 1; n > 0 && skipped < lowered.size(); --n)
    skipped += decode_char(lowered.data() + skipped, lowered.data() + lowered.size()).length;
  return result + lowered.substr(skipped);
}

std::string swap_case(std::string_view text) {
  const std::string lowered = lower_case(text);
  std::string result;
  size_t at = 0;
  each_char(text, [&](uint32_t point, std::string_view bytes) {
    size_t length = 0;
    for (int n = point == 0x130 ? 2 : 1; n > 0 && at + length < lowered.size(); --n)
      length += decode_char(lowered.data() + at + length, lowered.data() + lowered.size()).length;
    const uint32_t has = traits(point);
    if (has & kUpper)
      result += lowered.substr(at, length);
    else if (has & kLower)
      append_upper(result, point, bytes);
    else
      result += bytes;
    at += length;
  });
  return result;
}

std::string fold_case(std::string_view text) {
  std::string result;
  each_char(text, [&](uint32_t point, std::string_view bytes) {
    if (append_mapped(result, kFoldedCase, point)) return;
    // Alone, a capital sigma is lowered to the usual one.
    result += lower_case(bytes);
  });
  return result;
}

bool is_upper(std::string_view text) {
  bool cased = false, other = false;
  each_char(text, [&](uint32_t point, std::string_view) {
    const uint32_t has = traits(point);
    cased |= (has & kUpper) != 0;
    other |= (has & (kLower | kTitle)) != 0;
  });
  return cased && !other;
}

bool is_lower(std::string_view text) {
  bool cased = false, other = false;
  each_char(text, [&](uint32_t point, std::string_view) {
    const uint32_t has = traits(point);
    cased |= (has & kLower) != 0;
    other |= (has & (kUpper | kTitle)) != 0;
  });
  return cased && !other;
}

bool is_title(std::string_view text) {
  bool cased = false, in_word = false, wrong = false;
  each_char(text, [&](uint32_t point, std::string_view) {
    const uint32_t has = traits(point);
    const bool begins = has & (kUpper | kTitle);
    wrong |= begins ? in_word : (has & kLower) && !in_word;
    in_word = begins || (has & kLower);
    cased |= in_word;
  });
  return cased && !wrong;
}

bool all_have(std::string_view text, uint32_t any_of) {
  bool all = !text.empty();
  each_char(text, [&](uint32_t point, std::string_view) { all &= (traits(point) & any_of) != 0; });
  return all;
}

std::string_view strip(std::string_view text, bool left, bool right) {
  const auto is_space = [](uint32_t point) { return (traits(point) & kSpace) != 0; };
  while (left && !text.empty()) {
    const Char c = decode_char(text.data(), text.data() + text.size());
    if (!is_space(c.point)) break;
    text.remove_prefix(c.length);
  }
  while (right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!is_space(decode_char(text.data() + begin, text.data() + text.size()).point)) break;
    text = text.substr(0, begin);
  }
  return text;
}

}  // namespace tightloop::python_text
