#include <charconv>
#include <cmath>
#include <optional>

#include "tokenizer/jinja/filters/filters.h"
#include "tokenizer/jinja/values/operators.h"
#include "tokenizer/jinja/values/python_repr.h"
#include "tokenizer/unicode/python_text.h"

namespace tightloop::jinja {

namespace {

/// A number's digits without the underscores that Python allows between them; nothing where one is elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) {
      return at < text.size() && std::isxdigit(static_cast<uint8_t>(text[at]));
    };
    if (text[i] != '_')
      plain += text[i];
    else if (i == 0 || !digit(i - 1) || !digit(i + 1))
      return std::nullopt;
  }
  return plain;
}

/// Python's int(text, base).
std::optional<int64_t> read_integer(std::string_view text, int64_t base) {
  text = python_text::strip(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto prefix = [&](char letter, int64_t own) {
    if (text.size() < 2 || text[0] != '0' || (text[1] | 32) != letter || (base != own && base != 0))
      return false;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
    base = own;
    return true;
  };
  if (!prefix('x', 16) && !prefix('o', 8) && !prefix('b', 2) && base == 0) {
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != text.npos) return std::nullopt;
    base = 10;
  }
  if (base < 2 || base > 36) return std::nullopt;
  const auto plain = without_underscores(text);
  if (!plain || plain->empty() || !std::isalnum(static_cast<uint8_t>((*plain)[0]))) return std::nullopt;
  uint64_t size = 0;
  const auto read =
      std::from_chars(plain->data(), plain->data() + plain->size(), size, static_cast<int>(base));
  if (read.ptr != plain->data() + plain->size()) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range || size > (uint64_t{1} << 63) - (negative ? 0 : 1))
    fail("a whole number is too large: 64 bits are supported");
  return negative ? static_cast<int64_t>(uint64_t{0} - size) : static_cast<int64_t>(size);
}

/// Python's float(text).
std::optional<double> read_float(std::string_view text) {
  text = python_text::strip(text);
  const auto plain = without_underscores(text);
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view digits = *plain;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  double value = 0;
  std::string low;
  for (const char c : digits) low += static_cast<char>(std::tolower(static_cast<uint8_t>(c)));
  if (low == "inf" || low == "infinity") {
    value = INFINITY;
  } else if (low == "nan") {
    value = NAN;
  } else {
    if (!std::isdigit(static_cast<uint8_t>(low[0])) && low[0] != '.') return std::nullopt;
    const auto read = std::from_chars(low.data(), low.data() + low.size(), value);
    if (read.ec == std::errc::invalid_argument || read.ptr != low.data() + low.size()) return std::nullopt;
    if (read.ec == std::errc::result_out_of_range) value = std::strtod(low.c_str(), nullptr);
  }
  return negative ? -value : value;
}

Value whole_part(double value) {
  if (!(std::abs(value) < 9223372036854775807.0)) fail("cannot convert the float to an integer of 64 bits");
  return Value(static_cast<int64_t>(value));
}

Value filter_int(Run&, const Value& input, CallArguments& arguments) {
  const auto given = bind("int", arguments, {"default", "base"});
  const Value otherwise = given[0].is(ValueKind::kMissing) ? Value(int64_t{0}) : given[0];
  const bool has_base = given[1].is(ValueKind::kMissing) || given[1].is_integer();
  const int64_t base = given[1].is_integer() ? given[1].integer() : 10;
  if (input.is_undefined()) fail("{}", input.why_undefined());
  if (input.is_integer()) return Value(input.integer());
  if (input.is(ValueKind::kFloat)) {
    // Python's int(inf) is an OverflowError, which jinja2 passes on; int(nan) is caught.
    if (std::isnan(input.number())) return otherwise;
    return whole_part(input.number());
  }
  if (!input.is_text()) return otherwise;
  if (const auto value = has_base ? read_integer(input.bytes(), base) : std::nullopt) return Value(*value);
  const auto value = read_float(input.bytes());
  return value && std::isfinite(*value) ? whole_part(*value) : otherwise;
}

Value filter_float(Run&, const Value& input, CallArguments& arguments) {
  const auto given = bind("float", arguments, {"default"});
  const Value otherwise = given[0].is(ValueKind::kMissing) ? Value(0.0) : given[0];
  if (input.is_undefined()) fail("{}", input.why_undefined());
  if (input.is_number()) return Value(input.number());
  if (!input.is_text()) return otherwise;
  const auto value = read_float(input.bytes());
  return value ? Value(*value) : otherwise;
}

Value filter_abs(Run&, const Value& input, CallArguments& arguments) {
  bind("abs", arguments, {});
  if (input.is(ValueKind::kFloat)) return Value(std::abs(input.number()));
  if (input.is_undefined()) fail("{}", input.why_undefined());
  if (!input.is_integer()) fail("bad operand type for abs(): '{}'", type_name(input));
  return input.integer() < 0 ? negative(input) : Value(input.integer());
}

/// Python's round(): halves to even, and decimals as they are written.
Value rounded(const Value& value, int64_t precision) {
  if (value.is_integer()) {
    if (precision >= 0) return Value(value.integer());
    if (precision < -19) return Value(int64_t{0});
    using Wide = __int128;
    Wide unit = 1;
    for (int64_t i = 0; i < -precision; ++i) unit *= 10;
    const Wide size = value.integer() < 0 ? -Wide{value.integer()} : Wide{value.integer()};
    Wide result = size / unit;
    const Wide rest = size % unit * 2;
    if (rest > unit || (rest == unit && result % 2 == 1)) ++result;
    result *= unit;
    if (result > Wide{INT64_MAX}) fail("a whole number is too large: 64 bits are supported");
    return Value(static_cast<int64_t>(value.integer() < 0 ? -result : result));
  }
  const double number = value.number();
  if (!std::isfinite(number) || precision > 330) return Value(number);
  if (precision >= 0) return Value(std::strtod(fmt::format("{:.{}f}", number, precision).c_str(), nullptr));
  if (precision < -330) return Value(std::copysign(0.0, number));
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return Value(std::nearbyint(number / unit) * unit);
}

Value filter_round(Run& run, const Value& input, CallArguments& arguments) {
  const auto given = bind("round", arguments, {"precision", "method"});
  const int64_t precision = given[0].is(ValueKind::kMissing) ? 0 : to_integer(given[0]);
  const std::string method = given[1].is(ValueKind::kMissing) ? "common" : str_of(run, given[1]);
  if (method != "common" && method != "ceil" && method != "floor")
    fail("method must be common, ceil or floor");
  if (input.is_undefined()) fail("{}", input.why_undefined());
  if (!input.is_number()) fail("type {} doesn't define __round__ method", type_name(input));
  if (method == "common") return rounded(input, precision);
  const Value unit = binary(run, "**", Value(int64_t{10}), Value(precision));
  const Value scaled = binary(run, "*", input, unit);
  const double number = scaled.number();
  return binary(run, "/", whole_part(method == "ceil" ? std::ceil(number) : std::floor(number)), unit);
}

Value filter_filesizeformat(Run& run, const Value& input, CallArguments& arguments) {
  const auto given = bind("filesizeformat", arguments, {"binary"});
  const bool binary_units = truth(given[0]);
  if (input.is_undefined()) fail("{}", input.why_undefined());
  const auto read = input.is_text() ? read_float(input.bytes()) : std::optional(input.number());
  if (!read || !(input.is_number() || input.is_text()))
    fail("could not convert to float: {}", repr_of(run, input));
  const double bytes = *read, base = binary_units ? 1024 : 1000;
  if (bytes == 1) return run.text("1 Byte");
  if (bytes < base) return run.text(fmt::format("{} Bytes", static_cast<int64_t>(bytes)));
  const std::string_view letters = binary_units ? "KMGTPEZY" : "kMGTPEZY";
  double unit = base;
  size_t i = 0;
  for (; i < letters.size(); ++i) {
    unit *= base;
    if (bytes < unit || i + 1 == letters.size()) break;
  }
  return run.text(fmt::format("{:.1f} {}{}", base * bytes / unit, letters[i], binary_units ? "iB" : "B"));
}

}  // namespace

std::span<const NamedFilter> number_filters() {
  static constexpr NamedFilter kFilters[] = {
      {"int", filter_int},
      {"float", filter_float},
      {"abs", filter_abs},
      {"round", filter_round},
      {"filesizeformat", filter_filesizeformat},
  };
  return kFilters;
}

}  // namespace tightloop::jinja
