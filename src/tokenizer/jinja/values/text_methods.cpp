#include <algorithm>
#include <unordered_map>

#include "tokenizer/jinja/values/brace_format.h"
#include "tokenizer/jinja/values/format_number.h"
#include "tokenizer/jinja/values/lookup.h"
#include "tokenizer/jinja/values/markup.h"
#include "tokenizer/jinja/values/python_repr.h"
#include "tokenizer/jinja/values/text_search.h"
#include "tokenizer/unicode/lower_case.h"
#include "tokenizer/unicode/python_text.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop::jinja {

namespace {

using TextMethod = Value (*)(Run&, const Value& self, CallArguments& arguments);

const std::string& need_text(const Value& value, const char* method) {
  if (value.is_undefined())
    fail("{}() argument must be str, not Undefined ({})", method, value.why_undefined());
  if (!value.is_text()) fail("{}() argument must be str, not {}", method, type_name(value));
  return value.bytes();
}

bool is_given(const Value& value) { return !value.is(ValueKind::kMissing) && !value.is_none(); }

Value same_kind(Run& run, const Value& self, std::string text) {
  return run.text(std::move(text), self.as_text().markup);
}

Value list_of(Run& run, const Value& self, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  for (const std::string_view part : parts) items.push_back(same_kind(run, self, std::string(part)));
  return run.list(std::move(items));
}

/// The text between optional indices in code points, and where it begins; false where the range is empty from
/// the start (Python then finds nothing, not even the empty text).
struct TextWindow {
  std::string_view text;
  int64_t begin;
  bool valid;
};
TextWindow window_of(const Value& self, const Value& start, const Value& end) {
  const auto length = static_cast<int64_t>(self.as_text().length);
  const auto clip = [&](const Value& value, int64_t otherwise) {
    if (!is_given(value)) return otherwise;
    if (!value.is_integer()) fail("slice indices must be integers or None or have an __index__ method");
    const int64_t at = value.integer();
    return std::max<int64_t>(at < 0 ? std::max(at, -length) + length : at, 0);
  };
  const int64_t first = clip(start, 0), last = std::min(clip(end, length), length);
  if (first > last) return {{}, first, false};
  return {points_between(self, first, last), first, true};
}

Value find_in(Run&, const Value& self, CallArguments& arguments, const char* name, bool last, bool must) {
  const auto given = bind(name, arguments, {"sub", "start", "end"}, 1);
  const std::string& part = need_text(given[0], name);
  const TextWindow window = window_of(self, given[1], given[2]);
  size_t found = kNowhere;
  if (window.valid) found = last ? find_last(window.text, part) : find_first(window.text, part);
  if (found != kNowhere) return Value(window.begin + points_of(window.text.substr(0, found)));
  if (must) fail("substring not found");
  return Value(int64_t{-1});
}

Value strip_ends(Run& run, const Value& self, CallArguments& arguments, const char* name, bool left,
                 bool right) {
  const auto given = bind(name, arguments, {"chars"});
  const std::string_view text = self.bytes();
  if (!is_given(given[0])) return same_kind(run, self, std::string(python_text::strip(text, left, right)));
  return same_kind(run, self, std::string(strip_any(text, need_text(given[0], name), left, right)));
}

Value split_text(Run& run, const Value& self, CallArguments& arguments, const char* name, bool from_right) {
  const auto given = bind(name, arguments, {"sep", "maxsplit"});
  const int64_t most = given[1].is(ValueKind::kMissing) ? -1 : to_integer(given[1]);
  run.charge(self.bytes().size());
  if (!is_given(given[0])) return list_of(run, self, split_at_space(self.bytes(), most, from_right));
  const std::string& separator = need_text(given[0], name);
  if (separator.empty()) fail("empty separator");
  return list_of(
      run, self,
      from_right ? split_at_last(self.bytes(), separator, most) : split_at(self.bytes(), separator, most));
}

Value begins_or_ends(Run& run, const Value& self, CallArguments& arguments, const char* name, bool begins) {
  const auto given = bind(name, arguments, {"prefix", "start", "end"}, 1);
  const TextWindow window = window_of(self, given[1], given[2]);
  const auto matches = [&](const Value& part) {
    const std::string& bytes = need_text(part, name);
    return window.valid && (begins ? window.text.starts_with(bytes) : window.text.ends_with(bytes));
  };
  if (!given[0].is(ValueKind::kTuple)) return Value(matches(given[0]));
  for (const Value& part : given[0].items()) {
    run.step();
    if (matches(part)) return Value(true);
  }
  return Value(false);
}

Value in_width(Run& run, const Value& self, CallArguments& arguments, const char* name, char align) {
  const auto given = bind(name, arguments, {"width", "fillchar"}, 1);
  const int64_t width = to_integer(given[0]);
  std::string fill = " ";
  if (!given[1].is(ValueKind::kMissing)) {
    fill = need_text(given[1], name);
    if (points_of(fill) != 1) fail("The fill character must be exactly one character long");
  }
  const auto length = static_cast<int64_t>(self.as_text().length);
  // Python puts the odd one left where the width is odd.
  if (align == '^' && width > length && ((width - length) & width & 1))
    return same_kind(run, self,
                     aligned(run, aligned(run, self.bytes(), length + 1, '>', fill), width, '^', fill));
  return same_kind(run, self, aligned(run, self.bytes(), width, align, fill));
}

Value partition(Run& run, const Value& self, CallArguments& arguments, const char* name, bool last) {
  const auto given = bind(name, arguments, {"sep"}, 1);
  const std::string& separator = need_text(given[0], name);
  if (separator.empty()) fail("empty separator");
  const std::string& text = self.bytes();
  const size_t at = last ? find_last(text, separator) : find_first(text, separator);
  const auto part = [&](std::string bytes) { return same_kind(run, self, std::move(bytes)); };
  if (at == kNowhere)
    return last ? run.tuple({part(""), part(""), part(text)}) : run.tuple({part(text), part(""), part("")});
  return run.tuple({part(text.substr(0, at)), part(separator), part(text.substr(at + separator.size()))});
}

Value join_items(Run& run, const Value& self, CallArguments& arguments) {
  const auto given = bind("join", arguments, {"iterable"}, 1);
  std::string result;
  const auto next = run.iterate(given[0]);
  size_t index = 0;
  for (Value item; next(item); ++index) {
    if (!item.is_text()) fail("sequence item {}: expected str instance, {} found", index, type_name(item));
    run.charge(item.bytes().size() + self.bytes().size());
    if (index) result += self.bytes();
    result += self.as_text().markup ? escaped(run, item).bytes() : item.bytes();
    if (result.size() > run.limits().value_bytes) fail("the template builds a text that is too long");
  }
  return same_kind(run, self, std::move(result));
}

Value replace_part(Run& run, const Value& self, CallArguments& arguments) {
  if (!arguments.keywords.empty()) fail("replace() takes no keyword arguments");
  const auto given = bind("replace", arguments, {"old", "new", "count"}, 2);
  const std::string& from = need_text(given[0], "replace");
  need_text(given[1], "replace");
  const std::string to = self.as_text().markup ? escaped(run, given[1]).bytes() : given[1].bytes();
  const int64_t most = given[2].is(ValueKind::kMissing) ? -1 : to_integer(given[2]);
  return same_kind(run, self, replaced(run, self.bytes(), from, to, most));
}

Value fill_zeros(Run& run, const Value& self, CallArguments& arguments) {
  const int64_t width = to_integer(bind("zfill", arguments, {"width"}, 1)[0]);
  const std::string& text = self.bytes();
  const bool has_sign = text.starts_with('+') || text.starts_with('-');
  const std::string digits =
      aligned(run, std::string_view(text).substr(has_sign), width - has_sign, '>', "0");
  return same_kind(run, self, (has_sign ? text.substr(0, 1) : "") + digits);
}

Value expand_tabs(Run& run, const Value& self, CallArguments& arguments) {
  const auto given = bind("expandtabs", arguments, {"tabsize"});
  const int64_t size = given[0].is(ValueKind::kMissing) ? 8 : to_integer(given[0]);
  std::string result;
  int64_t column = 0;
  for (const char c : self.bytes()) {
    if (c == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      if (static_cast<uint64_t>(spaces) > run.limits().value_bytes)
        fail("the template builds a text that is too long");
      run.charge(static_cast<uint64_t>(spaces));
      result.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      result += c;
      column = c == '\n' || c == '\r' ? 0 : column + ((static_cast<uint8_t>(c) & 0xC0) != 0x80 ? 1 : 0);
    }
  }
  return same_kind(run, self, std::move(result));
}

Value without_end(Run& run, const Value& self, CallArguments& arguments, const char* name, bool prefix) {
  const auto given = bind(name, arguments, {"part"}, 1);
  const std::string &part = need_text(given[0], name), &text = self.bytes();
  if (prefix) return same_kind(run, self, text.starts_with(part) ? text.substr(part.size()) : text);
  const bool ends = !part.empty() && text.ends_with(part);
  return same_kind(run, self, ends ? text.substr(0, text.size() - part.size()) : text);
}

Value count_parts(Run&, const Value& self, CallArguments& arguments) {
  const auto given = bind("count", arguments, {"sub", "start", "end"}, 1);
  const std::string& part = need_text(given[0], "count");
  const TextWindow window = window_of(self, given[1], given[2]);
  if (!window.valid) return Value(int64_t{0});
  return Value(part.empty() ? points_of(window.text) + 1 : count_of(window.text, part));
}

bool is_identifier(std::string_view text) {
  return !text.empty() && python_text::all_have(text, python_text::kIdentifier) &&
         (python_text::traits(decode_char(text.data(), text.data() + text.size()).point) &
          python_text::kIdentifierStart);
}

/// Methods without arguments that change a text, or say something of it.
template <std::string (*kChange)(std::string_view)>
Value changed(Run& run, const Value& self, CallArguments& arguments) {
  bind("the method", arguments, {});
  return same_kind(run, self, kChange(self.bytes()));
}
template <bool (*kHolds)(std::string_view)>
Value holds(Run&, const Value& self, CallArguments& arguments) {
  bind("the method", arguments, {});
  return Value(kHolds(self.bytes()));
}
template <uint32_t kTraits>
Value all_chars(Run&, const Value& self, CallArguments& arguments) {
  bind("the method", arguments, {});
  return Value(python_text::all_have(self.bytes(), kTraits));
}

const std::unordered_map<std::string_view, TextMethod>& text_methods() {
  using enum python_text::Trait;
  static const std::unordered_map<std::string_view, TextMethod> kMethods{
      {"upper", changed<python_text::upper>},
      {"lower", changed<lower_case>},
      {"title", changed<python_text::title>},
      {"capitalize", changed<python_text::capitalize>},
      {"swapcase", changed<python_text::swap_case>},
      {"casefold", changed<python_text::fold_case>},
      {"isupper", holds<python_text::is_upper>},
      {"islower", holds<python_text::is_lower>},
      {"istitle", holds<python_text::is_title>},
      {"isidentifier", holds<is_identifier>},
      {"isalpha", all_chars<kAlpha>},
      {"isalnum", all_chars<kAlpha | kDecimal | kDigit | kNumeric>},
      {"isdigit", all_chars<kDigit>},
      {"isdecimal", all_chars<kDecimal>},
      {"isnumeric", all_chars<kNumeric>},
      {"isspace", all_chars<kSpace>},
      {"isprintable",
       [](Run&, const Value& self, CallArguments& arguments) {
         bind("isprintable", arguments, {});
         return Value(self.bytes().empty() || python_text::all_have(self.bytes(), kPrintable));
       }},
      {"isascii",
       [](Run&, const Value& self, CallArguments& arguments) {
         bind("isascii", arguments, {});
         return Value(self.as_text().is_ascii());
       }},
      {"strip", [](Run& run, const Value& self,
                   CallArguments& a) { return strip_ends(run, self, a, "strip", true, true); }},
      {"lstrip", [](Run& run, const Value& self,
                    CallArguments& a) { return strip_ends(run, self, a, "lstrip", true, false); }},
      {"rstrip", [](Run& run, const Value& self,
                    CallArguments& a) { return strip_ends(run, self, a, "rstrip", false, true); }},
      {"split", [](Run& run, const Value& self,
                   CallArguments& a) { return split_text(run, self, a, "split", false); }},
      {"rsplit", [](Run& run, const Value& self,
                    CallArguments& a) { return split_text(run, self, a, "rsplit", true); }},
      {"splitlines",
       [](Run& run, const Value& self, CallArguments& a) {
         const auto given = bind("splitlines", a, {"keepends"});
         return list_of(run, self, split_lines(self.bytes(), truth(given[0])));
       }},
      {"startswith", [](Run& run, const Value& self,
                        CallArguments& a) { return begins_or_ends(run, self, a, "startswith", true); }},
      {"endswith", [](Run& run, const Value& self,
                      CallArguments& a) { return begins_or_ends(run, self, a, "endswith", false); }},
      {"find", [](Run& run, const Value& self,
                  CallArguments& a) { return find_in(run, self, a, "find", false, false); }},
      {"rfind", [](Run& run, const Value& self,
                   CallArguments& a) { return find_in(run, self, a, "rfind", true, false); }},
      {"index", [](Run& run, const Value& self,
                   CallArguments& a) { return find_in(run, self, a, "index", false, true); }},
      {"rindex", [](Run& run, const Value& self,
                    CallArguments& a) { return find_in(run, self, a, "rindex", true, true); }},
      {"count", count_parts},
      {"replace", replace_part},
      {"join", join_items},
      {"zfill", fill_zeros},
      {"expandtabs", expand_tabs},
      {"center",
       [](Run& run, const Value& self, CallArguments& a) { return in_width(run, self, a, "center", '^'); }},
      {"ljust",
       [](Run& run, const Value& self, CallArguments& a) { return in_width(run, self, a, "ljust", '<'); }},
      {"rjust",
       [](Run& run, const Value& self, CallArguments& a) { return in_width(run, self, a, "rjust", '>'); }},
      {"removeprefix", [](Run& run, const Value& self,
                          CallArguments& a) { return without_end(run, self, a, "removeprefix", true); }},
      {"removesuffix", [](Run& run, const Value& self,
                          CallArguments& a) { return without_end(run, self, a, "removesuffix", false); }},
      {"partition", [](Run& run, const Value& self,
                       CallArguments& a) { return partition(run, self, a, "partition", false); }},
      {"rpartition", [](Run& run, const Value& self,
                        CallArguments& a) { return partition(run, self, a, "rpartition", true); }},
      {"format", brace_format},
      {"format_map",
       [](Run& run, const Value& self, CallArguments& a) {
         const auto given = bind("format_map", a, {"mapping"}, 1);
         if (!given[0].is(ValueKind::kDict)) fail("format_map() argument must be a mapping");
         CallArguments named;
         for (const auto& [key, value] : given[0].dict().entries)
           if (key.is_text()) named.keywords.emplace_back(key.bytes(), value);
         return brace_format(run, self, named);
       }},
  };
  return kMethods;
}

}  // namespace

Value text_method(Run& run, const Value& text, std::string_view name) {
  const auto found = text_methods().find(name);
  if (found == text_methods().end()) {
    if (name == "encode" || name == "translate" || name == "maketrans")
      fail("the method '{}' of texts is not supported", name);
    return {};
  }
  return run.function(
      std::string(name),
      [text, method = found->second](Run& inner, CallArguments& arguments) {
        inner.step_over(text);
        return method(inner, text, arguments);
      },
      text);
}

}  // namespace tightloop::jinja
