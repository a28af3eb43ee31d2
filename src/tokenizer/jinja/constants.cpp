#include "tokenizer/jinja/constants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "tokenizer/unicode/unicode.h"

namespace tightloop::jinja {

namespace {

/// Digits of a base with single underscores between (or, `lead`, before) them; how many bytes.
size_t digits_size(std::string_view text, int base, bool lead = false) {
  const auto is_digit = [base](char c) {
    const int value = c >= '0' && c <= '9'                     ? c - '0'
                      : std::isxdigit(static_cast<uint8_t>(c)) ? 10 + (c | 32) - 'a'
                                                               : 99;
    return value < base;
  };
  size_t size = 0;
  while (size < text.size()) {
    if (is_digit(text[size]))
      ++size;
    else if (text[size] == '_' && (size > 0 || lead) && size + 1 < text.size() && is_digit(text[size + 1]))
      size += 2;
    else
      break;
  }
  return size;
}

size_t exponent_size(std::string_view text) {
  if (text.empty() || (text[0] | 32) != 'e') return 0;
  const size_t sign = text.size() > 1 && (text[1] == '+' || text[1] == '-') ? 1 : 0;
  const size_t digits = digits_size(text.substr(1 + sign), 10);
  return digits ? 1 + sign + digits : 0;
}

}  // namespace

size_t number_size(std::string_view text, bool after_dot) {
  const size_t whole = digits_size(text, 10);
  if (!after_dot) {
    const auto rest = text.substr(whole);
    const size_t fraction = rest.starts_with('.') ? digits_size(rest.substr(1), 10) : 0;
    const size_t point = fraction ? 1 + fraction : 0;
    const size_t exponent = exponent_size(rest.substr(point));
    if (point + exponent > 0) return whole + point + exponent;
  }
  if (text[0] != '0') return whole;
  for (const auto& [letter, base] : {std::pair{'b', 2}, std::pair{'o', 8}, std::pair{'x', 16}})
    if (text.size() > 1 && (text[1] | 32) == letter)
      if (const size_t size = digits_size(text.substr(2), base, true)) return 2 + size;
  return digits_size(text, 1);
}

std::optional<Value> number_value(std::string_view number) {
  std::string plain(number);
  std::erase(plain, '_');
  const char* end = plain.data() + plain.size();
  const int base = plain.size() < 2 || plain[0] != '0' ? 10
                   : (plain[1] | 32) == 'x'            ? 16
                   : (plain[1] | 32) == 'o'            ? 8
                   : (plain[1] | 32) == 'b'            ? 2
                                                       : 10;
  if (base == 10 && plain.find_first_of(".eE") != plain.npos) {
    double value = 0;
    const auto read = std::from_chars(plain.data(), end, value);
    if (read.ec == std::errc::result_out_of_range) value = std::strtod(plain.c_str(), nullptr);  // inf or 0
    return Value(value);
  }
  int64_t value = 0;
  const auto read = std::from_chars(plain.data() + (base == 10 ? 0 : 2), end, value, base);
  if (read.ec != std::errc()) return std::nullopt;
  return Value(value);
}

size_t quoted_size(std::string_view text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == text[0]) return i + 1;
    if (text[i] == '\\') ++i;
  }
  return 0;
}

std::optional<std::string> unquoted(std::string_view text, std::string& why) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    const char c = ++i < text.size() ? text[i] : '\\';
    constexpr std::string_view kPlain = "\\'\"abfnrtv", kMeans = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t at = kPlain.find(c); at != kPlain.npos) {
      result += kMeans[at];
    } else if (c == '\n') {
      continue;
    } else if (c >= '0' && c <= '7') {
      uint32_t point = 0;
      size_t digits = 0;
      for (; digits < 3 && i + digits < text.size() && text[i + digits] >= '0' && text[i + digits] <= '7';
           ++digits)
        point = point * 8 + static_cast<uint32_t>(text[i + digits] - '0');
      append_utf8(result, point);
      i += digits - 1;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      const auto hex = text.substr(i + 1, digits);
      uint32_t point = 0;
      const auto read = std::from_chars(hex.data(), hex.data() + hex.size(), point, 16);
      if (hex.size() < digits || read.ptr != hex.data() + digits || point > 0x10FFFF) {
        why = fmt::format("a string holds an escape \\{} that is not followed by {} digits of a character", c,
                          digits);
        return std::nullopt;
      }
      if (point >= 0xD800 && point < 0xE000) {
        why = "a string holds half of a surrogate pair; write the character itself";
        return std::nullopt;
      }
      append_utf8(result, point);
      i += digits;
    } else if (c == 'N') {
      why = "characters by name (\\N{...}) are not supported; write the character itself";
      return std::nullopt;
    } else if (static_cast<uint8_t>(c) >= 0x80) {
      // Python escapes the character first, so the backslash before it makes that escape a plain text.
      const Char odd = decode_char(text.data() + i, text.data() + text.size());
      result += odd.point < 0x100     ? fmt::format("\\x{:02x}", odd.point)
                : odd.point < 0x10000 ? fmt::format("\\u{:04x}", odd.point)
                                      : fmt::format("\\U{:08x}", odd.point);
      i += odd.length - 1;
    } else {
      result += '\\';
      result += c;
    }
  }
  return result;
}

}  // namespace tightloop::jinja
