#include "data/read/json_numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tightloop {

namespace {

bool is_json_digit(char c) { return c >= '0' && c <= '9'; }

// Skips digits; false if there was none.
bool digits(std::string_view text, size_t& at) {
  const size_t first = at;
  while (at < text.size() && is_json_digit(text[at])) ++at;
  return at > first;
}

bool is_number(std::string_view text) {
  size_t at = text.starts_with('-') ? 1 : 0;
  const bool zero = at < text.size() && text[at] == '0';
  const size_t first = at;
  if (!digits(text, at) || (zero && at > first + 1)) return false;
  if (at < text.size() && text[at] == '.' && !digits(text, ++at)) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (!digits(text, at)) return false;
  }
  return at == text.size();
}

/// Whether simdjson takes it: whole ones of 64 bits, others that are finite.
bool fits(std::string_view number) {
  const char* const end = number.data() + number.size();
  if (number.find_first_of(".eE") != number.npos) {
    double value = 0;
    return std::from_chars(number.data(), end, value).ec == std::errc() && std::isfinite(value);
  }
  int64_t whole = 0;
  uint64_t positive = 0;
  return std::from_chars(number.data(), end, whole).ec == std::errc() ||
         std::from_chars(number.data(), end, positive).ec == std::errc();
}

}  // namespace

bool without_large_numbers(std::string_view json, std::string& out) {
  out.clear();
  for (size_t at = 0; at < json.size();) {
    if (json[at] == '"') {
      size_t end = at + 1;
      while (end < json.size() && json[end] != '"') end += json[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, json.size());
      out.append(json.substr(at, end - at));
      at = end;
    } else if (json[at] == '-' || is_json_digit(json[at])) {
      const size_t end = std::min(json.find_first_not_of("0123456789+-.eE", at), json.size());
      if (!is_number(json.substr(at, end - at))) return false;
      out += fits(json.substr(at, end - at)) ? json.substr(at, end - at) : kLargeNumber;
      at = end;
    } else {
      out += json[at++];
    }
  }
  return true;
}

}  // namespace tightloop
