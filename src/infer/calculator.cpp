#include "infer/calculator.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <variant>

namespace tightloop {

namespace {

__extension__ typedef __int128 WideInteger;
__extension__ typedef unsigned __int128 WideSize;
using CalculatedNumber = std::variant<WideInteger, double>;

struct NoResult {};

constexpr size_t kLongestExpression = 10'000;
constexpr int kDeepestParentheses = 100;

WideSize size_of(WideInteger value) {
  return value < 0 ? -static_cast<WideSize>(value) : static_cast<WideSize>(value);
}

/// An integer in range; NoResult where it has overflowed or comes near to it.
WideInteger within(WideInteger value, bool overflow) {
  if (overflow || size_of(value) > WideSize{1} << 126) throw NoResult{};
  return value;
}

/// a / b, rounded once to the nearest double as Python does it.
double quotient_of(WideInteger a, WideInteger b) {
  const bool negative = (a < 0) != (b < 0);
  const WideSize divisor = size_of(b);
  WideSize quotient = size_of(a) / divisor, rest = size_of(a) % divisor;
  int exponent = 0;
  bool more = false;  // of the quotient than is in `quotient`
  for (; quotient >> 64 != 0; quotient >>= 1, ++exponent) more |= quotient & 1;
  for (; quotient >> 63 == 0 && rest != 0; --exponent) {
    rest <<= 1;
    quotient = quotient << 1 | (rest >= divisor);
    if (rest >= divisor) rest -= divisor;
  }
  more |= rest != 0;
  if (quotient >> 63 != 0) quotient |= more;  // below the last bit that a double has
  const double size = std::ldexp(static_cast<double>(static_cast<uint64_t>(quotient)), exponent);
  return negative ? -size : size;
}

WideInteger floor_quotient(WideInteger a, WideInteger b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

double floor_quotient(double a, double b) {
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double down = std::floor(quotient);
  return quotient - down > 0.5 ? down + 1 : down;
}

double as_double(const CalculatedNumber& number) {
  const auto* integer = std::get_if<WideInteger>(&number);
  return integer ? static_cast<double>(*integer) : std::get<double>(number);
}

enum class Operation { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide };

CalculatedNumber apply(Operation operation, const CalculatedNumber& left, const CalculatedNumber& right) {
  const bool divides = operation == Operation::kDivide || operation == Operation::kFloorDivide;
  if (divides && as_double(right) == 0) throw NoResult{};
  const auto *a = std::get_if<WideInteger>(&left), *b = std::get_if<WideInteger>(&right);
  const double x = as_double(left), y = as_double(right);
  WideInteger result = 0;
  bool overflow = false;
  switch (operation) {
    case Operation::kAdd:
      if (!a || !b) return x + y;
      overflow = __builtin_add_overflow(*a, *b, &result);
      break;
    case Operation::kSubtract:
      if (!a || !b) return x - y;
      overflow = __builtin_sub_overflow(*a, *b, &result);
      break;
    case Operation::kMultiply:
      if (!a || !b) return x * y;
      overflow = __builtin_mul_overflow(*a, *b, &result);
      break;
    case Operation::kDivide:
      return a && b ? quotient_of(*a, *b) : x / y;
    case Operation::kFloorDivide:
      if (!a || !b) return floor_quotient(x, y);
      result = floor_quotient(*a, *b);
      break;
  }
  return within(result, overflow);
}

/// Python's grammar of what the characters 0-9 * + - / . ( ) and space can spell.
class ArithmeticParser {
 public:
  explicit ArithmeticParser(std::string_view text) : rest_(text) {}

  CalculatedNumber parse() {
    const auto value = sum();
    if (!at_end()) throw NoResult{};
    return value;
  }

 private:
  bool at_end() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    return rest_.empty();
  }
  bool take(std::string_view symbol) {
    if (at_end() || !rest_.starts_with(symbol)) return false;
    rest_.remove_prefix(symbol.size());
    return true;
  }

  CalculatedNumber sum() {
    auto value = product();
    for (;;) {
      if (take("+"))
        value = apply(Operation::kAdd, value, product());
      else if (take("-"))
        value = apply(Operation::kSubtract, value, product());
      else
        return value;
    }
  }

  CalculatedNumber product() {
    auto value = signed_number();
    for (;;) {
      if (take("*"))
        value = apply(Operation::kMultiply, value, signed_number());
      else if (take("//"))
        value = apply(Operation::kFloorDivide, value, signed_number());
      else if (take("/"))
        value = apply(Operation::kDivide, value, signed_number());
      else
        return value;
    }
  }

  CalculatedNumber signed_number() {
    bool negative = false, any = false;
    for (;; any = true) {
      if (take("-"))
        negative = !negative;
      else if (!take("+"))
        break;
    }
    auto value = operand();
    if (!negative || !any) return value;
    if (const auto* integer = std::get_if<WideInteger>(&value)) return -*integer;
    return -std::get<double>(value);
  }

  CalculatedNumber operand() {
    if (!take("(")) return literal();
    if (++depth_ > kDeepestParentheses) throw NoResult{};
    const auto value = sum();
    if (!take(")")) throw NoResult{};
    --depth_;
    return value;
  }

  CalculatedNumber literal() {
    at_end();
    const size_t digits = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    size_t length = digits;
    const bool decimal = length < rest_.size() && rest_[length] == '.';
    if (decimal) length = std::min(rest_.find_first_not_of("0123456789", length + 1), rest_.size());
    if (length == 0 || (decimal && length == 1)) throw NoResult{};
    const std::string text(rest_.substr(0, length));
    rest_.remove_prefix(length);
    if (decimal) return std::strtod(text.c_str(), nullptr);
    const bool zero = text.find_first_not_of('0') == text.npos;
    if (text.size() > 1 && text[0] == '0' && !zero) throw NoResult{};  // as in Python
    WideInteger value = 0;
    for (const char digit : text) {
      const bool overflow =
          __builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit - '0', &value);
      within(value, overflow);
    }
    return value;
  }

  std::string_view rest_;
  int depth_ = 0;
};

std::string spelled(WideInteger value) {
  std::string digits;
  for (WideSize left = size_of(value); left != 0 || digits.empty(); left /= 10)
    digits += static_cast<char>('0' + static_cast<int>(left % 10));
  if (value < 0) digits += '-';
  std::ranges::reverse(digits);
  return digits;
}

/// Python's repr(): the shortest digits that read back, with an exponent below 1e-4 and from 1e16 on.
std::string spelled(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  const double size = std::abs(value);
  const bool scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  std::array<char, 64> buffer{};
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                     scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string text(buffer.data(), written.ptr);
  if (!scientific && text.find('.') == text.npos) text += ".0";
  return text;
}

/// Texts in quotes, in parentheses or not, and their methods count, lower and upper.
class TextParser {
 public:
  explicit TextParser(std::string_view text) : rest_(text) {}

  std::string parse() {
    auto value = expression();
    if (!skip_spaces().empty()) throw NoResult{};
    return value.text;
  }

 private:
  struct Value {
    std::string text;
    bool is_text = true;  // or else the number of a count
  };

  std::string_view skip_spaces() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    return rest_;
  }
  bool take(std::string_view symbol) {
    if (!skip_spaces().starts_with(symbol)) return false;
    rest_.remove_prefix(symbol.size());
    return true;
  }

  Value expression() {
    Value value;
    if (take("(")) {
      if (++depth_ > kDeepestParentheses) throw NoResult{};
      value = expression();
      if (!take(")")) throw NoResult{};
      --depth_;
    } else {
      value.text = quoted();
    }
    while (take(".")) value = call(std::move(value));
    return value;
  }

  // Neighbours are one text.
  std::string quoted() {
    std::string text;
    bool any = false;
    for (; !skip_spaces().empty() && (rest_[0] == '\'' || rest_[0] == '"'); any = true) {
      const size_t end = rest_.find(rest_[0], 1);
      if (end == rest_.npos) throw NoResult{};
      text += rest_.substr(1, end - 1);
      rest_.remove_prefix(end + 1);
    }
    if (!any) throw NoResult{};
    return text;
  }

  Value call(Value on) {
    if (!on.is_text) throw NoResult{};
    const bool count = take("count"), lower = !count && take("lower");
    if (!count && !lower && !take("upper")) throw NoResult{};
    if (!take("(")) throw NoResult{};
    if (count) {
      if (++depth_ > kDeepestParentheses) throw NoResult{};
      const Value wanted = expression();
      --depth_;
      if (!wanted.is_text || !take(")")) throw NoResult{};
      return {std::to_string(occurrences(on.text, wanted.text)), false};
    }
    if (!take(")")) throw NoResult{};
    for (char& letter : on.text) {
      if (lower && letter >= 'A' && letter <= 'Z') letter += 'a' - 'A';
      if (!lower && letter >= 'a' && letter <= 'z') letter -= 'a' - 'A';
    }
    return on;
  }

  static size_t occurrences(std::string_view text, std::string_view wanted) {
    if (wanted.empty()) return text.size() + 1;
    size_t count = 0;
    for (size_t at = text.find(wanted); at != text.npos; at = text.find(wanted, at + wanted.size())) ++count;
    return count;
  }

  std::string_view rest_;
  int depth_ = 0;
};

bool consists_of(std::string_view text, std::string_view characters) {
  return text.find_first_not_of(characters) == text.npos;
}

}  // namespace

std::optional<std::string> calculate(std::string_view expression) {
  std::string text(expression);
  std::erase(text, ',');
  if (text.size() > kLongestExpression) return {};
  try {
    if (consists_of(text, "0123456789*+-/.() ")) {
      if (text.find("**") != text.npos) return {};
      const auto value = ArithmeticParser(text).parse();
      return std::visit([](auto number) { return spelled(number); }, value);
    }
    if (text.find(".count(") == text.npos ||
        !consists_of(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'\"()._ "))
      return {};
    std::string lower = text;
    for (char& letter : lower)
      if (letter >= 'A' && letter <= 'Z') letter += 'a' - 'A';
    // What nanochat refuses wherever it stands, also within quotes.
    static constexpr std::array<std::string_view, 17> kRefused{
        "__",      "import", "exec", "eval", "compile", "open",    "file",    "input",  "raw_input",
        "globals", "locals", "vars", "dir",  "getattr", "setattr", "delattr", "hasattr"};
    for (const auto word : kRefused)
      if (lower.find(word) != lower.npos) return {};
    return TextParser(text).parse();
  } catch (const NoResult&) {
    return {};
  }
}

}  // namespace tightloop
