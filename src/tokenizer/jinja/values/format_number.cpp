#include "tokenizer/jinja/values/format_number.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tightloop::jinja {

std::string float_digits(Run& run, double value, char kind, int64_t precision, bool alternate) {
  const bool upper = kind >= 'A' && kind <= 'Z';
  if (std::isnan(value)) return upper ? "NAN" : "nan";
  if (std::isinf(value)) return upper ? "INF" : "inf";
  if (precision > 10'000) fail("a precision of {} digits is too large", precision);
  run.charge(static_cast<uint64_t>(precision) + 400);
  const std::string form = std::string("%") + (alternate ? "#" : "") + ".*" + kind;
  std::string digits(static_cast<size_t>(precision) + 400, '\0');
  const int size =
      std::snprintf(digits.data(), digits.size(), form.c_str(), static_cast<int>(precision), std::abs(value));
  digits.resize(static_cast<size_t>(std::max(size, 0)));
  return digits;
}

std::string integer_digits(int64_t value, int base, bool upper) {
  const char* kDigits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  uint64_t rest = value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string digits;
  do {
    digits += kDigits[rest % static_cast<uint64_t>(base)];
    rest /= static_cast<uint64_t>(base);
  } while (rest > 0);
  std::ranges::reverse(digits);
  return digits;
}

int64_t points_of(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

std::string aligned(Run& run, std::string_view text, int64_t width, char align, std::string_view fill) {
  const int64_t missing = width - points_of(text);
  if (missing <= 0) return std::string(text);
  if (static_cast<uint64_t>(missing) > run.limits().value_bytes) fail("a width of {} is too large", width);
  run.charge(text.size() + static_cast<uint64_t>(missing) * fill.size());
  run.step(static_cast<uint64_t>(missing) / 16);
  const int64_t left = align == '>' ? missing : align == '<' ? 0 : missing / 2;
  std::string result;
  for (int64_t i = 0; i < left; ++i) result += fill;
  result += text;
  for (int64_t i = left; i < missing; ++i) result += fill;
  return result;
}

}  // namespace tightloop::jinja
