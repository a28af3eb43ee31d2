#include "tokenizer/jinja/values/brace_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tokenizer/jinja/values/format_number.h"
#include "tokenizer/jinja/values/lookup.h"
#include "tokenizer/jinja/values/markup.h"
#include "tokenizer/jinja/values/python_repr.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop::jinja {

namespace {

/// [[fill]align][sign][z][#][0][width][grouping][.precision][type]
struct FormatSpec {
  std::string fill = " ";
  char align = '\0', sign = '\0', grouping = '\0', type = '\0';
  bool alternate = false, zero = false, zero_sign = false;
  int64_t width = 0, precision = -1;
};

FormatSpec read_format_spec(std::string_view text) {
  FormatSpec spec;
  size_t at = 0;
  const auto peek = [&](size_t ahead = 0) { return at + ahead < text.size() ? text[at + ahead] : '\0'; };
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  const auto number = [&] {
    int64_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at) {
      value = value * 10 + (peek() - '0');
      if (value > 1'000'000'000) fail("Too many decimal digits in format string");
    }
    return value;
  };
  bool fills = false;
  if (!text.empty()) {
    const size_t first = decode_char(text.data(), text.data() + text.size()).length;
    if (is_align(peek(first))) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      fills = true;
      at = first + 1;
    } else if (is_align(peek())) {
      spec.align = text[at++];
    }
  }
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = text[at++];
  if (peek() == 'z') spec.zero_sign = true, ++at;
  if (peek() == '#') spec.alternate = true, ++at;
  if (peek() == '0' && !fills) {
    spec.fill = "0";
    spec.zero = !spec.align;
    if (spec.zero) spec.align = '=';
    ++at;
  }
  spec.width = number();
  if (peek() == ',' || peek() == '_') spec.grouping = text[at++];
  if (peek() == '.') {
    ++at;
    if (!(peek() >= '0' && peek() <= '9')) fail("Format specifier missing precision");
    spec.precision = number();
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail("Invalid format specifier '{}'", text);
  if (spec.grouping && spec.type == 'n') fail("Cannot specify '{}' with 'n'.", spec.grouping);
  return spec;
}

std::string grouped(const std::string& digits, char separator, size_t size) {
  if (!separator) return digits;
  std::string result;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0) result += separator;
    result += digits[i];
  }
  return result;
}

class BraceFormatter {
 public:
  BraceFormatter(Run& run, const Value& format, CallArguments& arguments)
      : run_(run), markup_(format.as_text().markup), arguments_(arguments) {}

  std::string format(std::string_view text, int level = 0) {
    if (level > 2) fail("Max string recursion exceeded");
    std::string result;
    for (size_t at = 0; at < text.size();) {
      const char c = text[at++];
      if (result.size() > run_.limits().value_bytes) fail("the template builds a text that is too long");
      if (c != '{' && c != '}') {
        result += c;
        continue;
      }
      if (at < text.size() && text[at] == c) {
        result += c, ++at;
        continue;
      }
      if (c == '}') fail("Single '}}' encountered in format string");
      size_t end = at;
      for (int open = 1; end < text.size(); ++end) {
        open += text[end] == '{' ? 1 : text[end] == '}' ? -1 : 0;
        if (open == 0) break;
      }
      if (end >= text.size()) fail("expected '}}' before end of string");
      result += field(text.substr(at, end - at), level);
      at = end + 1;
    }
    return result;
  }

 private:
  std::string field(std::string_view text, int level) {
    size_t end = 0;
    for (bool bracket = false; end < text.size(); ++end) {
      if (text[end] == '[') bracket = true;
      if (text[end] == ']') bracket = false;
      if (!bracket && (text[end] == '!' || text[end] == ':')) break;
    }
    Value value = lookup(text.substr(0, end));
    auto rest = text.substr(end);
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':'))
        fail("expected ':' after conversion specifier");
      const char conversion = rest[1];
      if (conversion != 's' && conversion != 'r' && conversion != 'a')
        fail("Unknown conversion specifier {}", conversion);
      value = run_.text(conversion == 's'   ? str_of(run_, value)
                        : conversion == 'r' ? repr_of(run_, value)
                                            : ascii_of(run_, value));
      rest = rest.substr(2);
    }
    const std::string spec = format(rest.starts_with(':') ? rest.substr(1) : rest, level + 1);
    std::string made = written(value, spec);
    return markup_ && !(value.is_text() && value.as_text().markup) ? escape_html(made) : made;
  }

  Value lookup(std::string_view name) {
    size_t end = std::min(name.find_first_of(".["), name.size());
    const auto first = name.substr(0, end);
    Value value;
    int64_t index = -1;
    const auto read = std::from_chars(first.data(), first.data() + first.size(), index);
    if (first.empty() || (read.ec == std::errc() && read.ptr == first.data() + first.size())) {
      if (first.empty() ? numbered_ : automatic_ > 0)
        fail("cannot switch between manual and automatic field numbering");
      if (first.empty()) index = automatic_++;
      numbered_ |= !first.empty();
      if (index < 0 || static_cast<size_t>(index) >= arguments_.positional.size())
        fail("Replacement index {} out of range for positional args tuple", index);
      value = arguments_.positional[static_cast<size_t>(index)];
    } else {
      const auto found = std::ranges::find(arguments_.keywords, first,
                                           [](const auto& word) { return std::string_view(word.first); });
      if (found == arguments_.keywords.end()) fail("the format names '{}', which is not there", first);
      value = found->second;
    }
    while (end < name.size()) {
      const bool item = name[end] == '[';
      if (!item && name[end] != '.') fail("Only '.' or '[' may follow ']' in format field specifier");
      const size_t begin = end + 1;
      end = item ? name.find(']', begin) : std::min(name.find_first_of(".[", begin), name.size());
      if (end == name.npos) fail("Missing ']' in format string");
      const auto part = name.substr(begin, end - begin);
      if (part.empty()) fail("Empty attribute in format string");
      int64_t number = 0;
      const auto digits = std::from_chars(part.data(), part.data() + part.size(), number);
      const bool is_number =
          digits.ec == std::errc() && digits.ptr == part.data() + part.size() && part[0] != '-';
      value = !item       ? get_attribute(run_, value, part)
              : is_number ? get_item(run_, value, Value(number))
                          : get_item(run_, value, run_.text(std::string(part)));
      if (item) ++end;
    }
    return value;
  }

  std::string written(const Value& value, const std::string& text) {
    if (text.empty()) return str_of(run_, value);
    if (value.is_text()) return written_text(value.bytes(), text);
    if (!value.is_number()) fail("unsupported format string passed to {}.__format__", type_name(value));
    FormatSpec spec = read_format_spec(text);
    if (value.is(ValueKind::kBoolean) && !spec.type)
      spec.type = 'd';  // Python's bool with a width is a number
    const bool as_float =
        value.is(ValueKind::kFloat) || std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
    if (spec.type == 's') fail("Unknown format code 's' for object of type '{}'", type_name(value));
    return as_float ? written_float(value, spec) : written_integer(value, spec);
  }

  std::string written_text(const std::string& bytes, const std::string& text) {
    FormatSpec spec = read_format_spec(text);
    if (spec.type != '\0' && spec.type != 's')
      fail("Unknown format code '{}' for object of type 'str'", spec.type);
    if (spec.sign || spec.zero_sign || spec.alternate || spec.grouping || (spec.align == '=' && !spec.zero))
      fail("a format of numbers was given for a text");
    size_t size = 0;
    for (int64_t n = spec.precision; size < bytes.size() && n != 0; --n)
      size += decode_char(bytes.data() + size, bytes.data() + bytes.size()).length;
    const char align = spec.align == '=' || !spec.align ? '<' : spec.align;
    return aligned(run_, std::string_view(bytes).substr(0, size), spec.width, align, spec.fill);
  }

  std::string written_integer(const Value& value, const FormatSpec& spec) {
    const char type = spec.type ? spec.type : 'd';
    if (spec.precision >= 0 || spec.zero_sign)
      fail("'.' and 'z' are not allowed in the format of an integer");
    if (type == 'c') {
      std::string text;
      if (spec.sign || spec.alternate || spec.grouping)
        fail("a sign, '#' or ',' is not allowed in the format 'c'");
      if (value.integer() < 0 || value.integer() > 0x10FFFF) fail("%c arg not in range(0x110000)");
      append_utf8(text, static_cast<uint32_t>(value.integer()));
      const char align = spec.align && spec.align != '=' ? spec.align : '>';
      return aligned(run_, text, spec.width, align, spec.fill);
    }
    const int base = type == 'd' || type == 'n' ? 10
                     : type == 'b'              ? 2
                     : type == 'o'              ? 8
                     : (type | 32) == 'x'       ? 16
                                                : 0;
    if (!base) fail("Unknown format code '{}' for object of type '{}'", type, type_name(value));
    if (spec.grouping == ',' && base != 10) fail("Cannot specify ',' with '{}'.", type);
    std::string prefix = signed_prefix(spec, value.integer() < 0);
    if (spec.alternate && base != 10) prefix += std::string("0") + type;
    return padded(spec, prefix, integer_digits(value.integer(), base, type == 'X'), "", base == 10 ? 3 : 4);
  }

  std::string written_float(const Value& value, const FormatSpec& spec) {
    double number = value.number();
    const bool percent = spec.type == '%';
    if (percent) number *= 100;
    std::string digits;
    if (spec.type == '\0') {
      digits = untyped_digits(number, spec);
    } else {
      if (std::string_view("eEfFgGn%").find(spec.type) == std::string_view::npos)
        fail("Unknown format code '{}' for object of type 'float'", spec.type);
      const char kind = percent ? 'f' : spec.type == 'n' ? 'g' : spec.type;
      digits = float_digits(run_, number, kind, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
    }
    const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
    const std::string rest = digits.substr(whole) + (percent ? "%" : "");
    const bool no_minus = spec.zero_sign && digits.find_first_of("123456789ni") == digits.npos;
    return padded(spec, signed_prefix(spec, std::signbit(number) && !std::isnan(number) && !no_minus),
                  digits.substr(0, whole), rest, 3);
  }

  /// As repr(), or with so many digits; a float stays one, by its point or exponent.
  std::string untyped_digits(double number, const FormatSpec& spec) {
    if (spec.precision < 0 || !std::isfinite(number)) {
      std::string digits = float_repr(std::abs(number));
      const size_t exponent = digits.find('e');
      if (spec.alternate && exponent != digits.npos && digits.find('.') == digits.npos)
        digits.insert(exponent, ".");
      return digits;
    }
    const int64_t most = std::max<int64_t>(spec.precision, 1);
    std::string digits = float_digits(run_, number, 'e', most - 1, spec.alternate);
    const size_t e = digits.find('e');
    const int exponent = std::stoi(digits.substr(e + 1));
    if (exponent >= -4 && exponent + 1 < most) {
      digits = float_digits(run_, number, 'g', most, spec.alternate);
      return digits.find('.') == digits.npos ? digits + ".0" : digits;
    }
    std::string significant = digits.substr(0, e);
    if (!spec.alternate && significant.find('.') != significant.npos)
      significant.resize(significant.find_last_not_of(".0") + 1);
    return significant + digits.substr(e);
  }

  static std::string signed_prefix(const FormatSpec& spec, bool negative) {
    return negative ? "-" : spec.sign == '+' || spec.sign == ' ' ? std::string(1, spec.sign) : "";
  }

  std::string padded(const FormatSpec& spec, const std::string& prefix, std::string whole,
                     const std::string& rest, size_t group) {
    const char align = spec.align ? spec.align : '>';
    if (align == '=') {
      const int64_t width = spec.width - static_cast<int64_t>(prefix.size() + rest.size());
      if (spec.fill == "0" && spec.grouping) {
        // Zeros are grouped, too.
        if (width > 10'000) fail("a width of {} is too large", width);
        std::string digits = grouped(whole, spec.grouping, group);
        while (static_cast<int64_t>(digits.size()) < width) {
          run_.step(1 + digits.size() / 64);
          whole.insert(whole.begin(), '0');
          digits = grouped(whole, spec.grouping, group);
        }
        return prefix + digits + rest;
      }
      return prefix + aligned(run_, grouped(whole, spec.grouping, group), width, '>', spec.fill) + rest;
    }
    return aligned(run_, prefix + grouped(whole, spec.grouping, group) + rest, spec.width, align, spec.fill);
  }

  Run& run_;
  const bool markup_;
  CallArguments& arguments_;
  int64_t automatic_ = 0;
  bool numbered_ = false;
};

}  // namespace

Value brace_format(Run& run, const Value& format, CallArguments& arguments) {
  run.step_over(format);
  return run.text(BraceFormatter(run, format, arguments).format(format.bytes()), format.as_text().markup);
}

}  // namespace tightloop::jinja
