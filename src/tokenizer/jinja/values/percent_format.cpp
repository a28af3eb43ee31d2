#include "tokenizer/jinja/values/percent_format.h"

#include <cmath>

#include "tokenizer/jinja/values/format_number.h"
#include "tokenizer/jinja/values/markup.h"
#include "tokenizer/jinja/values/python_repr.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop::jinja {

namespace {

class PercentFormatter {
 public:
  PercentFormatter(Run& run, const Value& format, const Value& values)
      : run_(run), text_(format.bytes()), markup_(format.as_text().markup), values_(values) {}

  std::string format() {
    while (at_ < text_.size()) {
      const size_t percent = std::min(text_.find('%', at_), text_.size());
      result_ += text_.substr(at_, percent - at_);
      at_ = percent + 1;
      if (percent < text_.size()) format_one();
      if (result_.size() > run_.limits().value_bytes) fail("the template builds a text that is too long");
    }
    // Python takes whatever has items, and is no tuple or text, for a mapping.
    const bool may_be_left = values_.is(ValueKind::kDict) || values_.is(ValueKind::kList) ||
                             values_.is(ValueKind::kRange) || values_.is_undefined();
    const size_t given = values_.is(ValueKind::kTuple) ? values_.items().size() : 1;
    if (!may_be_left && !by_name_ && used_ < given)
      fail("not all arguments converted during string formatting");
    return std::move(result_);
  }

 private:
  struct Spec {
    bool left = false, plus = false, space = false, alternate = false, zero = false;
    int64_t width = 0, precision = -1;
  };

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  Value next_value() {
    if (values_.is(ValueKind::kTuple)) {
      if (used_ >= values_.items().size()) fail("not enough arguments for format string");
      return values_.items()[used_++];
    }
    if (used_++ > 0) fail("not enough arguments for format string");
    return values_;
  }

  int64_t number() {
    if (peek() == '*') {
      ++at_;
      const Value value = next_value();
      if (!value.is_integer()) fail("* wants int");
      return value.integer();
    }
    int64_t value = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      value = value * 10 + (peek() - '0');
      if (value > 1'000'000'000) fail("a width of a format is too large");
    }
    return value;
  }

  void format_one() {
    Value value;
    if (peek() == '(') {
      int open = 1;
      const size_t begin = ++at_;
      for (; at_ < text_.size() && open > 0; ++at_)
        open += text_[at_] == '(' ? 1 : text_[at_] == ')' ? -1 : 0;
      if (open > 0) fail("incomplete format key");
      if (!values_.is(ValueKind::kDict)) fail("format requires a mapping");
      const Value* found = values_.dict().find(text_.substr(begin, at_ - 1 - begin));
      if (!found) fail("the format names a key '{}' that is not there", text_.substr(begin, at_ - 1 - begin));
      value = *found;
      by_name_ = true;
    }
    Spec spec;
    for (;; ++at_) {
      if (peek() == '-')
        spec.left = true;
      else if (peek() == '+')
        spec.plus = true;
      else if (peek() == ' ')
        spec.space = true;
      else if (peek() == '#')
        spec.alternate = true;
      else if (peek() == '0')
        spec.zero = true;
      else
        break;
    }
    spec.width = number();
    if (spec.width < 0) spec.left = true, spec.width = -spec.width;
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(number(), 0);
    }
    while (peek() == 'h' || peek() == 'l' || peek() == 'L') ++at_;
    if (at_ >= text_.size()) fail("incomplete format");
    const char kind = text_[at_++];
    if (kind == '%') {
      result_ += '%';
      return;
    }
    if (value.is(ValueKind::kMissing)) value = next_value();
    write(spec, kind, value);
  }

  void write(Spec spec, char kind, const Value& value) {
    switch (kind) {
      case 's':
      case 'r':
      case 'a': {
        std::string text = kind == 's'   ? str_of(run_, value)
                           : kind == 'r' ? repr_of(run_, value)
                                         : ascii_of(run_, value);
        if (markup_ && !(kind == 's' && value.is_text() && value.as_text().markup)) text = escape_html(text);
        if (spec.precision >= 0) cut(text, spec.precision);
        return pad(spec, "", text, false);
      }
      case 'c': {
        std::string text;
        if (value.is_integer()) {
          if (value.integer() < 0 || value.integer() > 0x10FFFF) fail("%c arg not in range(0x110000)");
          append_utf8(text, static_cast<uint32_t>(value.integer()));
        } else if (value.is_text() && value.as_text().length == 1) {
          text = value.bytes();
        } else {
          fail("%c requires int or char");
        }
        return pad(spec, "", text, false);
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return write_integer(spec, kind, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (value.is_undefined()) fail("{}", value.why_undefined());
        if (!value.is_number()) fail("must be real number, not {}", type_name(value));
        const double number = value.number();
        const std::string digits =
            float_digits(run_, number, kind, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
        return pad(spec, sign(spec, std::signbit(number) && !std::isnan(number)), digits, true);
      }
      default:
        fail("unsupported format character '{}'", kind);
    }
  }

  void write_integer(const Spec& spec, char kind, const Value& value) {
    if (value.is_undefined()) fail("{}", value.why_undefined());
    const bool decimal = kind == 'd' || kind == 'i' || kind == 'u';
    if (!value.is_integer() && !(decimal && value.is(ValueKind::kFloat)))
      fail("%{} format: a real number is required, not {}", kind, type_name(value));
    int64_t number = value.integer();
    if (value.is(ValueKind::kFloat)) {
      if (!(std::abs(value.number()) < 9.2e18)) fail("cannot convert the float to an integer of 64 bits");
      number = static_cast<int64_t>(value.number());
    }
    std::string digits = integer_digits(number, decimal ? 10 : kind == 'o' ? 8 : 16, kind == 'X');
    if (spec.precision > static_cast<int64_t>(digits.size()))
      digits = aligned(run_, digits, spec.precision, '>', "0");
    std::string prefix = sign(spec, number < 0);
    if (spec.alternate && !decimal) prefix += std::string("0") + kind;
    pad(spec, prefix, digits, true);
  }

  static std::string sign(const Spec& spec, bool negative) {
    return negative ? "-" : spec.plus ? "+" : spec.space ? " " : "";
  }
  static void cut(std::string& text, int64_t points) {
    size_t at = 0;
    for (; at < text.size() && points > 0; --points)
      at += decode_char(text.data() + at, text.data() + text.size()).length;
    text.resize(at);
  }
  void pad(const Spec& spec, const std::string& prefix, const std::string& text, bool is_number) {
    if (spec.left)
      result_ += aligned(run_, prefix + text, spec.width, '<');
    else if (spec.zero && is_number)
      result_ += prefix + aligned(run_, text, spec.width - static_cast<int64_t>(prefix.size()), '>', "0");
    else
      result_ += aligned(run_, prefix + text, spec.width, '>');
  }

  Run& run_;
  const std::string& text_;
  const bool markup_;
  const Value& values_;
  size_t at_ = 0, used_ = 0;
  bool by_name_ = false;
  std::string result_;
};

}  // namespace

Value percent_format(Run& run, const Value& format, const Value& values) {
  run.step_over(format);
  return run.text(PercentFormatter(run, format, values).format(), format.as_text().markup);
}

}  // namespace tightloop::jinja
