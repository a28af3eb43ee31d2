#include "tokenizer/jinja/values/text_search.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "tokenizer/unicode/python_text.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop::jinja {

namespace {

/// Where the last character begins.
size_t last_char(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

bool is_space(std::string_view text, size_t at) {
  return python_text::traits(decode_char(text.data() + at, text.data() + text.size()).point) &
         python_text::kSpace;
}

}  // namespace

size_t find_first(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return kNowhere;
  if (part.empty()) return from;
  if (text.size() - from < part.size()) return kNowhere;
  const void* found = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : kNowhere;
}

size_t find_last(std::string_view text, std::string_view part) {
  if (part.size() <= 16) return text.rfind(part);
  const std::string backwards(text.rbegin(), text.rend()), part_backwards(part.rbegin(), part.rend());
  const size_t found = find_first(backwards, part_backwards);
  return found == kNowhere ? kNowhere : text.size() - found - part.size();
}

int64_t count_of(std::string_view text, std::string_view part) {
  int64_t count = 0;
  for (size_t at = 0; (at = find_first(text, part, at)) != kNowhere; at += part.size()) ++count;
  return count;
}

std::string replaced(Run& run, std::string_view text, std::string_view from, std::string_view to,
                     int64_t most) {
  if (most == 0) return std::string(text);
  std::string result;
  const auto check = [&] {
    if (result.size() > run.limits().value_bytes) fail("the template builds a text that is too long");
  };
  if (from.empty()) {  // before every character, and at the end
    size_t at = 0;
    for (; most != 0; --most) {
      result += to;
      check();
      if (at >= text.size()) break;
      const size_t length = decode_char(text.data() + at, text.data() + text.size()).length;
      result += text.substr(at, length);
      at += length;
    }
    return result += text.substr(std::min(at, text.size()));
  }
  size_t at = 0;
  for (size_t found; most != 0 && (found = find_first(text, from, at)) != kNowhere; --most) {
    result += text.substr(at, found - at);
    result += to;
    at = found + from.size();
    check();
  }
  return result += text.substr(at);
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t most) {
  std::vector<std::string_view> parts;
  size_t at = 0;
  for (size_t found; most != 0 && (found = find_first(text, separator, at)) != kNowhere; --most) {
    parts.push_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::vector<std::string_view> split_at_last(std::string_view text, std::string_view separator, int64_t most) {
  if (most < 0 && separator.size() == 1) return split_at(text, separator, most);
  // The same from the other end. Parts are found from the right: "aaa" at "aa" leaves "a" and "".
  const std::string backwards(text.rbegin(), text.rend()), turned(separator.rbegin(), separator.rend());
  std::vector<std::string_view> parts;
  for (const std::string_view part : split_at(backwards, turned, most)) {
    const size_t begin = static_cast<size_t>(part.data() - backwards.data());
    parts.push_back(text.substr(text.size() - begin - part.size(), part.size()));
  }
  std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> split_at_space(std::string_view text, int64_t most, bool from_right) {
  std::vector<std::string_view> parts;
  text = python_text::strip(text, !from_right, from_right);
  while (!text.empty()) {
    if (most == 0) {
      // The rest is one part, without the white space at its other end that would part it.
      text = python_text::strip(text, from_right ? false : true, from_right ? true : false);
      if (!text.empty()) parts.push_back(text);
      break;
    }
    size_t edge = from_right ? text.size() : 0;
    while (from_right ? edge > 0 : edge < text.size()) {
      const size_t at = from_right ? last_char(text.substr(0, edge)) : edge;
      if (is_space(text, at)) break;
      edge = from_right ? at : at + decode_char(text.data() + at, text.data() + text.size()).length;
    }
    parts.push_back(from_right ? text.substr(edge) : text.substr(0, edge));
    text = from_right ? text.substr(0, edge) : text.substr(edge);
    text = python_text::strip(text, !from_right, from_right);
    if (most > 0) --most;
  }
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Char c = decode_char(text.data() + at, text.data() + text.size());
    const size_t after = at + c.length;
    const bool ends = (c.point >= 0x0A && c.point <= 0x0D) || (c.point >= 0x1C && c.point <= 0x1E) ||
                      c.point == 0x85 || c.point == 0x2028 || c.point == 0x2029;
    if (!ends) {
      at = after;
      continue;
    }
    const size_t next = c.point == '\r' && after < text.size() && text[after] == '\n' ? after + 1 : after;
    lines.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
    begin = at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string_view strip_any(std::string_view text, std::string_view set, bool left, bool right) {
  std::unordered_set<uint32_t> points;
  for (size_t at = 0; at < set.size();) {
    const Char c = decode_char(set.data() + at, set.data() + set.size());
    points.insert(c.point);
    at += c.length;
  }
  const auto in_set = [&](size_t at) {
    return points.contains(decode_char(text.data() + at, text.data() + text.size()).point);
  };
  while (left && !text.empty() && in_set(0))
    text.remove_prefix(decode_char(text.data(), text.data() + text.size()).length);
  while (right && !text.empty() && in_set(last_char(text))) text = text.substr(0, last_char(text));
  return text;
}

}  // namespace tightloop::jinja
