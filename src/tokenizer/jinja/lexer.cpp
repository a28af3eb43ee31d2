#include "tokenizer/jinja/lexer.h"

#include <algorithm>

#include "tokenizer/jinja/constants.h"
#include "tokenizer/unicode/python_text.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop::jinja {

namespace {

constexpr std::string_view kSigns[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                       "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

/// Line ends as \n; the last one is dropped.
std::string with_plain_newlines(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      plain += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      plain += text[i];
    }
  }
  if (plain.ends_with('\n')) plain.pop_back();
  return plain;
}

class Cutter {
 public:
  explicit Cutter(std::string_view text) : source_(with_plain_newlines(text)) {}

  std::vector<LexToken> cut() {
    while (at_ < source_.size()) cut_root();
    add(LexKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool next_is(std::string_view text) const { return rest().starts_with(text); }
  [[noreturn]] void refuse(std::string what) const { throw SyntaxFault{line_, std::move(what)}; }

  void add(LexKind kind, std::string text, Value value = {}) {
    tokens_.push_back({kind, line_, std::move(text), std::move(value)});
  }
  /// Goes on by so many bytes, which count as one match: whether it ended a line decides what may be
  /// stripped.
  void pass(size_t size) {
    const auto passed = rest().substr(0, size);
    line_ += static_cast<int>(std::ranges::count(passed, '\n'));
    line_starts_ = passed.ends_with('\n');
    at_ += size;
  }
  size_t space_at(size_t at) const {
    const auto text = std::string_view(source_).substr(at);
    return text.size() - python_text::strip(text, true, false).size();
  }

  /// The length of a tag's end at `at`: "-%}" takes the white space after it, "%}" one line end; 0: none.
  size_t tag_end_at(size_t at, std::string_view end) const {
    const auto text = std::string_view(source_).substr(at);
    if (text.starts_with('-') && text.substr(1).starts_with(end))
      return 1 + end.size() + space_at(at + 1 + end.size());
    if (end == "}}") return text.starts_with(end) ? end.size() : 0;
    if (text.starts_with('+') && text.substr(1).starts_with(end)) return 1 + end.size();
    if (!text.starts_with(end)) return 0;
    return end.size() + (text.substr(end.size()).starts_with('\n') ? 1 : 0);
  }

  /// Text before a tag, as the tag's sign and lstrip_blocks leave it.
  void add_data(std::string_view text, char sign, bool strips_line) {
    std::string_view kept = text;
    if (sign == '-') {
      kept = python_text::strip(text, false, true);
    } else if (sign != '+' && strips_line) {
      const size_t line = text.rfind('\n') + 1;
      if ((line > 0 || line_starts_) && line < text.size() &&
          python_text::all_have(text.substr(line), python_text::kSpace))
        kept = text.substr(0, line);
    }
    if (!kept.empty()) add(LexKind::kData, std::string(kept));
  }

  static char sign_of(std::string_view after) {
    return !after.empty() && (after[0] == '-' || after[0] == '+') ? after[0] : '\0';
  }

  /// The length of "{%- raw -%}" at `at`, 0 where there is none.
  size_t raw_begin_at(size_t at) const {
    size_t i = at + 2;
    if (sign_of(std::string_view(source_).substr(i))) ++i;
    i += space_at(i);
    if (std::string_view(source_).substr(i, 3) != "raw") return 0;
    i += 3;
    i += space_at(i);
    const auto text = std::string_view(source_).substr(i);
    if (text.starts_with("%}")) return i + 2 - at;
    if (text.starts_with("-%}")) return i + 3 + space_at(i + 3) - at;
    return 0;
  }

  void cut_root() {
    const auto text = rest();
    size_t tag = 0;
    for (;; ++tag) {
      tag = text.find('{', tag);
      if (tag == text.npos) break;
      if (tag + 1 < text.size() && (text[tag + 1] == '{' || text[tag + 1] == '%' || text[tag + 1] == '#'))
        break;
    }
    if (tag == text.npos) {
      add(LexKind::kData, std::string(text));
      pass(text.size());
      return;
    }
    const char sort = text[tag + 1], sign = sign_of(text.substr(tag + 2));
    const size_t raw = sort == '%' ? raw_begin_at(at_ + tag) : 0;
    add_data(text.substr(0, tag), sign, sort != '{');
    if (raw) {
      pass(tag + raw);
      return cut_raw();
    }
    pass(tag + 2 + (sign ? 1 : 0));
    if (sort == '#') return cut_comment();
    add(sort == '%' ? LexKind::kTagBegin : LexKind::kOutputBegin, "");
    cut_tag(sort == '%' ? "%}" : "}}");
  }

  void cut_raw() {
    const auto text = rest();
    if (text.empty()) return;  // jinja2 takes an open tag at the very end
    for (size_t tag = text.find("{%"); tag != text.npos; tag = text.find("{%", tag + 1)) {
      size_t i = at_ + tag + 2;
      const char sign = sign_of(std::string_view(source_).substr(i));
      if (sign) ++i;
      i += space_at(i);
      if (std::string_view(source_).substr(i, 6) != "endraw") continue;
      i += 6;
      i += space_at(i);
      const size_t end = tag_end_at(i, "%}");
      if (!end) continue;
      add_data(text.substr(0, tag), sign, true);
      return pass(i + end - at_);
    }
    refuse("a raw block has no endraw");
  }

  void cut_comment() {
    const auto text = rest();
    if (text.empty()) return;
    const size_t end = text.find("#}");
    if (end == text.npos) refuse("a comment has no end");
    const bool signed_end = end > 0 && (text[end - 1] == '-' || text[end - 1] == '+');
    const size_t begin = at_ + end - (signed_end ? 1 : 0);
    pass(begin + tag_end_at(begin, "#}") - at_);
  }

  void cut_tag(std::string_view end) {
    std::string open;  // the brackets that are to be closed
    while (at_ < source_.size()) {
      if (const size_t size = open.empty() ? tag_end_at(at_, end) : 0) {
        add(end == "%}" ? LexKind::kTagEnd : LexKind::kOutputEnd, "");
        return pass(size);
      }
      if (const size_t space = space_at(at_))
        pass(space);
      else
        cut_item(open);
    }
  }

  void cut_item(std::string& open) {
    const auto text = rest();
    const char c = text[0];
    if (c >= '0' && c <= '9') {
      const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
      const size_t size = number_size(text, after_dot);
      auto value = number_value(text.substr(0, size));
      if (!value) refuse("the number " + std::string(text.substr(0, size)) + " is too large");
      add(LexKind::kConstant, std::string(text.substr(0, size)), *value);
      return pass(size);
    }
    if (c == '"' || c == '\'') {
      const size_t size = quoted_size(text);
      if (size == 0) refuse("a string has no end");
      std::string why;
      auto value = unquoted(text.substr(1, size - 2), why);
      if (!value) refuse(why);
      add(LexKind::kConstant, "string", Value::text(std::move(*value)));
      return pass(size);
    }
    if (const size_t size = name_size(text)) {
      add(LexKind::kName, std::string(text.substr(0, size)));
      return pass(size);
    }
    for (const std::string_view sign : kSigns) {
      if (!text.starts_with(sign)) continue;
      balance(open, c);
      add(LexKind::kSign, std::string(sign));
      return pass(sign.size());
    }
    const Char unknown = decode_char(text.data(), text.data() + text.size());
    refuse("the character '" + std::string(text.substr(0, unknown.length)) + "' means nothing here");
  }

  void balance(std::string& open, char c) const {
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (open.empty() || open.back() != c) refuse(std::string("unexpected '") + c + "'");
    open.pop_back();
  }

  size_t name_size(std::string_view text) const {
    size_t size = 0;
    bool first = true, valid = true;
    while (size < text.size()) {
      const Char c = decode_char(text.data() + size, text.data() + text.size());
      const uint32_t has = python_text::traits(c.point);
      if (!(has & python_text::kIdentifier) && !python_text::is_word(has)) break;
      valid &= (has & (first ? python_text::kIdentifierStart : python_text::kIdentifier)) != 0;
      first = false;
      size += c.length;
    }
    if (size > 0 && !valid) refuse("a name holds a character that names cannot have");
    return size;
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::vector<LexToken> tokens_;
};

}  // namespace

std::vector<LexToken> cut_tokens(std::string_view template_text) { return Cutter(template_text).cut(); }

}  // namespace tightloop::jinja
