#include "tokenizer/jinja/values/operators.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja/values/markup.h"
#include "tokenizer/jinja/values/percent_format.h"
#include "tokenizer/jinja/values/text_search.h"

namespace tightloop::jinja {

namespace {

[[noreturn]] void unsupported(std::string_view sign, const Value& left, const Value& right) {
  if (left.is_undefined()) fail("{}", left.why_undefined());
  if (right.is_undefined()) fail("{}", right.why_undefined());
  fail("unsupported operand type(s) for {}: '{}' and '{}'", sign == "**" ? "** or pow()" : sign,
       type_name(left), type_name(right));
}

[[noreturn]] void too_large() { fail("a whole number is too large: 64 bits are supported"); }

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  for (int64_t factor = base; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(result, factor, &result)) too_large();
    if (exponent > 1 && __builtin_mul_overflow(factor, factor, &factor)) too_large();
  }
  return Value(result);
}

Value on_integers(std::string_view sign, int64_t left, int64_t right) {
  int64_t result = 0;
  if (sign == "+") {
    if (__builtin_add_overflow(left, right, &result)) too_large();
    return Value(result);
  }
  if (sign == "-") {
    if (__builtin_sub_overflow(left, right, &result)) too_large();
    return Value(result);
  }
  if (sign == "*") {
    if (__builtin_mul_overflow(left, right, &result)) too_large();
    return Value(result);
  }
  if (sign == "**") return integer_power(left, right);
  if (right == 0) fail("division by zero");
  if (sign == "/") return Value(static_cast<double>(left) / static_cast<double>(right));
  if (right == -1) {  // the one division that can overflow
    if (sign == "%") return Value(int64_t{0});
    if (__builtin_sub_overflow(int64_t{0}, left, &result)) too_large();
    return Value(result);
  }
  const int64_t rest = left % right;
  const bool below = rest != 0 && (rest < 0) != (right < 0);  // Python rounds down
  if (sign == "%") return Value(below ? rest + right : rest);
  return Value(left / right - (below ? 1 : 0));
}

Value on_floats(std::string_view sign, double left, double right) {
  if (sign == "+") return Value(left + right);
  if (sign == "-") return Value(left - right);
  if (sign == "*") return Value(left * right);
  if (sign == "**") {
    if (left == 0 && right < 0) fail("0.0 cannot be raised to a negative power");
    if (left < 0 && right != std::floor(right) && std::isfinite(right))
      fail("complex numbers are not supported");
    const double result = std::pow(left, right);
    if (std::isinf(result) && std::isfinite(left) && std::isfinite(right))
      fail("Numerical result out of range");
    return Value(result);
  }
  if (right == 0) fail("float division by zero");
  if (sign == "/") return Value(left / right);
  double rest = std::fmod(left, right);
  if (rest != 0 && (rest < 0) != (right < 0)) rest += right;
  if (rest == 0) rest = std::copysign(0.0, right);
  if (sign == "%") return Value(rest);
  const double quotient = (left - rest) / right, floored = std::floor(quotient);
  if (quotient == 0) return Value(std::copysign(0.0, left / right));
  return Value(quotient - floored > 0.5 ? floored + 1 : floored);
}

Value repeated(Run& run, const Value& what, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (what.is_text()) {
    const std::string& bytes = what.bytes();
    if (!bytes.empty() && static_cast<uint64_t>(times) > run.limits().value_bytes / bytes.size() + 1)
      fail("the template builds a text that is too long");
    run.charge(bytes.size() * static_cast<uint64_t>(times));
    run.step(bytes.size() * static_cast<uint64_t>(times) / 64);
    std::string result;
    result.reserve(bytes.size() * static_cast<size_t>(times));
    for (int64_t i = 0; !bytes.empty() && i < times; ++i) result += bytes;
    return Value::text(std::move(result), what.as_text().markup);
  }
  const auto& items = what.items();
  if (!items.empty() &&
      static_cast<uint64_t>(times) > run.limits().value_bytes / sizeof(Value) / items.size() + 1)
    fail("the template builds a list that is too long");
  run.charge(items.size() * static_cast<uint64_t>(times) * sizeof(Value));
  run.step(items.size() * static_cast<uint64_t>(times));
  std::vector<Value> result;
  for (int64_t i = 0; !items.empty() && i < times; ++i)
    result.insert(result.end(), items.begin(), items.end());
  return what.is(ValueKind::kTuple) ? run.tuple(std::move(result)) : run.list(std::move(result));
}

Value added(Run& run, const Value& left, const Value& right) {
  if (left.is_text()) {
    run.charge(left.bytes().size() + right.bytes().size());
    run.step((left.bytes().size() + right.bytes().size()) / 64);
    if (left.as_text().markup || right.as_text().markup)
      return run.text(escaped(run, left).bytes() + escaped(run, right).bytes(), true);
    std::string sum;
    sum.reserve(left.bytes().size() + right.bytes().size());
    sum.append(left.bytes()).append(right.bytes());
    return Value::text(std::move(sum));
  }
  std::vector<Value> items = run.items_of(left);
  const auto more = run.items_of(right);
  items.insert(items.end(), more.begin(), more.end());
  return left.is(ValueKind::kTuple) ? run.tuple(std::move(items)) : run.list(std::move(items));
}

}  // namespace

Value binary(Run& run, std::string_view sign, const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer()) return on_integers(sign, left.integer(), right.integer());
  if (left.is_number() && right.is_number()) return on_floats(sign, left.number(), right.number());
  const bool has_items = left.is_text() || left.is_list_or_tuple();
  if (sign == "+" && has_items && left.kind() == right.kind()) return added(run, left, right);
  if (sign == "%" && left.is_text()) return percent_format(run, left, right);
  if (sign == "*") {
    if (has_items && right.is_integer()) return repeated(run, left, right.integer());
    if (left.is_integer() && (right.is_text() || right.is_list_or_tuple()))
      return repeated(run, right, left.integer());
  }
  unsupported(sign, left, right);
}

Value negative(const Value& value) {
  if (value.is(ValueKind::kFloat)) return Value(-value.number());
  if (value.is_undefined()) fail("{}", value.why_undefined());
  if (!value.is_integer()) fail("bad operand type for unary -: '{}'", type_name(value));
  int64_t result = 0;
  if (__builtin_sub_overflow(int64_t{0}, value.integer(), &result)) too_large();
  return Value(result);
}

Value positive(const Value& value) {
  if (value.is(ValueKind::kFloat)) return value;
  if (value.is_undefined()) fail("{}", value.why_undefined());
  if (!value.is_integer()) fail("bad operand type for unary +: '{}'", type_name(value));
  return Value(value.integer());
}

bool contains(Run& run, const Value& container, const Value& item) {
  run.step_over(container);
  switch (container.kind()) {
    case ValueKind::kText: {
      if (!item.is_text()) fail("'in <string>' requires string as left operand, not {}", type_name(item));
      return find_first(container.bytes(), item.bytes()) != kNowhere;
    }
    case ValueKind::kDict:
      return container.dict().find(item) != nullptr;
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kView:
      return std::ranges::any_of(container.items(), [&](const Value& other) {
        run.step_over(other, item);
        return equal(other, item);
      });
    case ValueKind::kRange:
    case ValueKind::kIterator:
    case ValueKind::kUndefined: {
      const auto next = run.iterate(container);
      for (Value other; next(other);)
        if (equal(other, item)) return true;
      return false;
    }
    default:
      fail("argument of type '{}' is not iterable", type_name(container));
  }
}

bool compare(Run& run, std::string_view sign, const Value& left, const Value& right) {
  if (sign == "in") return contains(run, right, left);
  if (sign == "not in") return !contains(run, right, left);
  run.step_over(left, right);
  if (sign == "==") return equal(left, right);
  if (sign == "!=") return !equal(left, right);
  if (sign == "<") return less(left, right);
  if (sign == ">") return less(right, left, ">");
  // Numbers that are no numbers are neither smaller nor equal.
  if (sign == "<=") return less(left, right, "<=") || equal(left, right);
  return less(right, left, ">=") || equal(left, right);
}

int64_t length_of(Run&, const Value& value) {
  switch (value.kind()) {
    case ValueKind::kMissing:
    case ValueKind::kUndefined:
      return 0;
    case ValueKind::kText:
      return static_cast<int64_t>(value.as_text().length);
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kView:
      return static_cast<int64_t>(value.items().size());
    case ValueKind::kDict:
      return static_cast<int64_t>(value.dict().entries.size());
    case ValueKind::kRange:
      return value.as<RangeBody>().count;
    default:
      fail("object of type '{}' has no len()", type_name(value));
  }
}

}  // namespace tightloop::jinja
