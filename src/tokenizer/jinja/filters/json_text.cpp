#include "tokenizer/jinja/filters/json_text.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja/values/python_repr.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop::jinja {

namespace {

class JsonWriter {
 public:
  JsonWriter(Run& run, const JsonStyle& style) : run_(run), style_(style) {}
  std::string result{};

  void write(const Value& value) {
    const Run::Depth depth(run_);
    run_.step();
    switch (value.kind()) {
      case ValueKind::kNone:
        return add("null");
      case ValueKind::kBoolean:
        return add(value.integer() ? "true" : "false");
      case ValueKind::kInteger:
        return add(std::to_string(value.integer()));
      case ValueKind::kFloat:
        return add(number(value.number()));
      case ValueKind::kText:
        return write_text(value.bytes());
      case ValueKind::kList:
      case ValueKind::kTuple:
        return write_list(value.items());
      case ValueKind::kDict:
        return write_dict(value.dict());
      default:
        fail("Object of type {} is not JSON serializable", type_name(value));
    }
  }

 private:
  void add(std::string_view text) {
    if (result.size() + text.size() > run_.limits().value_bytes)
      fail("the template builds a text that is too long");
    result += text;
  }
  static std::string number(double value) {
    return std::isnan(value)   ? "NaN"
           : std::isinf(value) ? (value > 0 ? "Infinity" : "-Infinity")
                               : float_repr(value);
  }

  void write_text(std::string_view text) {
    std::string quoted = "\"";
    for (const char *p = text.data(), *end = p + text.size(); p < end;) {
      const Char c = decode_char(p, end);
      const std::string_view bytes(p, c.length);
      p += c.length;
      constexpr std::string_view kShort = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
      const size_t at = c.point < 0x80 ? kShort.find(static_cast<char>(c.point)) : kShort.npos;
      if (at != kShort.npos)
        (quoted += '\\') += kLetters[at];
      else if (c.point < 0x20)
        quoted += fmt::format("\\u{:04x}", c.point);
      else if (c.point < 0x7F || !style_.ascii)
        quoted += bytes;
      else if (c.point < 0x10000)
        quoted += fmt::format("\\u{:04x}", c.point);
      else
        quoted += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c.point - 0x10000) >> 10),
                              0xDC00 + ((c.point - 0x10000) & 0x3FF));
    }
    add(quoted += '"');
  }

  void new_line() {
    if (!style_.indent) return;
    add("\n");
    for (int i = 0; i < level_; ++i) add(*style_.indent);
  }

  void write_list(const std::vector<Value>& items) {
    if (items.empty()) return add("[]");
    add("[");
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) add(style_.item_separator);
      new_line();
      write(items[i]);
    }
    --level_;
    new_line();
    add("]");
  }

  void write_key(const Value& key) {
    switch (key.kind()) {
      case ValueKind::kText:
        return write_text(key.bytes());
      case ValueKind::kNone:
        return write_text("null");
      case ValueKind::kBoolean:
        return write_text(key.integer() ? "true" : "false");
      case ValueKind::kInteger:
        return write_text(std::to_string(key.integer()));
      case ValueKind::kFloat:
        return write_text(number(key.number()));
      default:
        fail("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  void write_dict(const DictBody& dict) {
    if (dict.entries.empty()) return add("{}");
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sorted)
      std::ranges::stable_sort(entries, [&](const auto* a, const auto* b) {
        run_.step();
        return less(a->first, b->first);
      });
    add("{");
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i) add(style_.item_separator);
      new_line();
      write_key(entries[i]->first);
      add(style_.key_separator);
      write(entries[i]->second);
    }
    --level_;
    new_line();
    add("}");
  }

  Run& run_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace

std::string json_text(Run& run, const Value& value, const JsonStyle& style) {
  JsonWriter writer(run, style);
  writer.write(value);
  return std::move(writer.result);
}

}  // namespace tightloop::jinja
