#include "tokenizer/jinja/values/python_repr.h"

#include <array>
#include <charconv>
#include <cmath>

#include "tokenizer/unicode/python_text.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop::jinja {

namespace {

class ReprWriter {
 public:
  explicit ReprWriter(Run& run) : run_(run) {}
  std::string result{};

  void write(const Value& value) {
    const Run::Depth depth(run_);
    run_.step();
    switch (value.kind()) {
      case ValueKind::kMissing:
      case ValueKind::kUndefined:
        return add("Undefined");
      case ValueKind::kNone:
        return add("None");
      case ValueKind::kBoolean:
        return add(value.integer() ? "True" : "False");
      case ValueKind::kInteger:
        return add(std::to_string(value.integer()));
      case ValueKind::kFloat:
        return add(float_repr(value.number()));
      case ValueKind::kText:
        return add(value.as_text().markup ? "Markup(" + quoted_repr(value.bytes()) + ")"
                                          : quoted_repr(value.bytes()));
      case ValueKind::kList:
        return write_items("[", value.items(), "]");
      case ValueKind::kTuple:
        return write_items("(", value.items(), value.items().size() == 1 ? ",)" : ")");
      case ValueKind::kView:
        add(value.as<ListBody>().view);
        return write_items("([", value.items(), "])");
      case ValueKind::kDict:
        return write_dict(value.dict());
      case ValueKind::kRange: {
        const auto& range = value.as<RangeBody>();
        return add(range.step == 1 ? fmt::format("range({}, {})", range.start, range.stop)
                                   : fmt::format("range({}, {}, {})", range.start, range.stop, range.step));
      }
      case ValueKind::kIterator:
        return add("<generator object>");
      case ValueKind::kNamespace:
        add("<Namespace ");
        write_dict(value.as<NamespaceBody>().attributes);
        return add(">");
      case ValueKind::kLoop:
      case ValueKind::kCallable:
        return add(value.as<CallableBody>().repr(run_));
    }
  }

 private:
  void add(std::string_view text) {
    if (result.size() + text.size() > run_.limits().value_bytes)
      fail("the template builds a text of more than {} bytes", run_.limits().value_bytes);
    result += text;
  }
  void write_items(const char* open, const std::vector<Value>& items, const char* close) {
    add(open);
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) add(", ");
      write(items[i]);
    }
    add(close);
  }
  void write_dict(const DictBody& dict) {
    add("{");
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      if (i) add(", ");
      write(dict.entries[i].first);
      add(": ");
      write(dict.entries[i].second);
    }
    add("}");
  }

  Run& run_;
};

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer.data(), static_cast<size_t>(end - buffer.data()));
  const size_t e = shortest.find('e');
  int exponent = 0;
  const char* digits_of = shortest.data() + e + 1;
  if (*digits_of == '+') ++digits_of;
  std::from_chars(digits_of, end, exponent);
  if (exponent < -4 || exponent >= 16) {  // as Python's repr: 1e-05, 1e+16
    return fmt::format("{}e{}{:02}", shortest.substr(0, e), exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  std::array<char, 64> plain;
  const auto plain_end =
      std::to_chars(plain.data(), plain.data() + plain.size(), value, std::chars_format::fixed).ptr;
  std::string result(plain.data(), plain_end);
  if (result.find('.') == result.npos) result += ".0";
  return result;
}

namespace {

std::string escaped_point(uint32_t point) {
  return point < 0x100     ? fmt::format("\\x{:02x}", point)
         : point < 0x10000 ? fmt::format("\\u{:04x}", point)
                           : fmt::format("\\U{:08x}", point);
}

}  // namespace

std::string quoted_repr(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string result(1, quote);
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const Char c = decode_char(p, end);
    const std::string_view bytes(p, c.length);
    p += c.length;
    if (c.point == static_cast<uint32_t>(quote) || c.point == '\\')
      (result += '\\') += bytes;
    else if (c.point == '\n')
      result += "\\n";
    else if (c.point == '\r')
      result += "\\r";
    else if (c.point == '\t')
      result += "\\t";
    else if (python_text::traits(c.point) & python_text::kPrintable)
      result += bytes;
    else
      result += escaped_point(c.point);
  }
  return result + quote;
}

std::string repr_of(Run& run, const Value& value) {
  ReprWriter writer(run);
  writer.write(value);
  return std::move(writer.result);
}

std::string ascii_of(Run& run, const Value& value) {
  const std::string text = repr_of(run, value);
  std::string result;
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const Char c = decode_char(p, end);
    if (c.point < 0x80)
      result += *p;
    else
      result += escaped_point(c.point);
    p += c.length;
  }
  return result;
}

std::string str_of(Run& run, const Value& value) {
  if (value.is_text()) return value.bytes();
  if (value.is_undefined() || value.is(ValueKind::kMissing)) return {};
  return repr_of(run, value);
}

std::string_view text_view(Run& run, const Value& value, std::string& made) {
  if (value.is_text()) return value.bytes();
  made = str_of(run, value);
  return made;
}

}  // namespace tightloop::jinja
