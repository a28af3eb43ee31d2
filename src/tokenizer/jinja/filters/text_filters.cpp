#include <algorithm>

#include "tokenizer/jinja/filters/filters.h"
#include "tokenizer/jinja/filters/json_text.h"
#include "tokenizer/jinja/filters/word_wrap.h"
#include "tokenizer/jinja/values/format_number.h"
#include "tokenizer/jinja/values/lookup.h"
#include "tokenizer/jinja/values/percent_format.h"
#include "tokenizer/jinja/values/python_repr.h"
#include "tokenizer/jinja/values/text_search.h"
#include "tokenizer/unicode/lower_case.h"
#include "tokenizer/unicode/python_text.h"
#include "tokenizer/unicode/unicode.h"

namespace tightloop::jinja {

namespace {

/// jinja2's soft_str(): texts stay, also as markup.
Value soft_text(Run& run, const Value& value) {
  return value.is_text() ? value : run.text(str_of(run, value));
}

/// The method of str with this name, on what soft_text() gives.
Value by_method(Run& run, const Value& input, std::string_view method, CallArguments& arguments) {
  return run.call(text_method(run, soft_text(run, input), method), arguments);
}

template <char kWhich>
Value filter_case(Run& run, const Value& input, CallArguments& arguments) {
  return by_method(run, input, kWhich == 'u' ? "upper" : kWhich == 'l' ? "lower" : "capitalize", arguments);
}

Value filter_trim(Run& run, const Value& input, CallArguments& arguments) {
  auto given = bind("trim", arguments, {"chars"});
  CallArguments chars{{given[0].is(ValueKind::kMissing) ? Value::none() : given[0]}, {}};
  return by_method(run, input, "strip", chars);
}

Value filter_title(Run& run, const Value& input, CallArguments& arguments) {
  bind("title", arguments, {});
  const std::string text = str_of(run, input);
  std::string result;
  // Words begin after these, unlike those of str.title(): "it's" has one.
  const auto parts_words = [](std::string_view c) {
    return std::string_view("-({[<").find(c) != std::string_view::npos ||
           python_text::all_have(c, python_text::kSpace);
  };
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    bool first = true, parting = false;
    for (; end < text.size();) {
      const size_t length = decode_char(text.data() + end, text.data() + text.size()).length;
      const bool parts = parts_words(std::string_view(text).substr(end, length));
      if (!first && parts != parting) break;
      parting = parts, first = false;
      end += length;
    }
    const auto word = std::string_view(text).substr(at, end - at);
    const size_t letter = decode_char(word.data(), word.data() + word.size()).length;
    result += python_text::upper(word.substr(0, letter)) + lower_case(word.substr(letter));
    at = end;
  }
  return run.text(std::move(result));
}

Value filter_string(Run& run, const Value& input, CallArguments& arguments) {
  bind("string", arguments, {});
  return soft_text(run, input);
}

Value filter_replace(Run& run, const Value& input, CallArguments& arguments) {
  const auto given = bind("replace", arguments, {"old", "new", "count"}, 2);
  const bool limited = !given[2].is(ValueKind::kMissing) && !given[2].is_none();
  const int64_t most = limited ? to_integer(given[2]) : -1;
  std::string text, from, to;
  const auto whole = text_view(run, input, text);
  return run.text(replaced(run, whole, text_view(run, given[0], from), text_view(run, given[1], to), most));
}

Value filter_center(Run& run, const Value& input, CallArguments& arguments) {
  const auto given = bind("center", arguments, {"width"});
  CallArguments width{{given[0].is(ValueKind::kMissing) ? Value(int64_t{80}) : given[0]}, {}};
  return by_method(run, input, "center", width);
}

Value filter_indent(Run& run, const Value& input, CallArguments& arguments) {
  const auto given = bind("indent", arguments, {"width", "first", "blank"});
  std::string indent = "    ";
  if (given[0].is_text())
    indent = given[0].bytes();
  else if (!given[0].is(ValueKind::kMissing))
    indent = aligned(run, "", to_integer(given[0]), '<');
  if (!input.is_text()) {
    if (input.is_undefined()) fail("{}", input.why_undefined());
    fail("unsupported operand type(s) for +=: '{}' and 'str'", type_name(input));
  }
  // jinja2 adds a line end before it splits, so a text that ends a line has one more, empty line.
  const std::string text = input.bytes() + "\n";
  const auto lines = split_lines(text, false);
  std::string result;
  const auto add = [&](std::string_view line, bool is_first) {
    if (!is_first) result += "\n";
    if (is_first ? truth(given[1]) : truth(given[2]) || !line.empty()) result += indent;
    result += line;
    if (result.size() > run.limits().value_bytes) fail("the template builds a text that is too long");
  };
  for (size_t i = 0; i < lines.size(); ++i) add(lines[i], i == 0);
  return run.text(std::move(result), input.as_text().markup);
}

Value filter_truncate(Run& run, const Value& input, CallArguments& arguments) {
  const auto given = bind("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const int64_t length = given[0].is(ValueKind::kMissing) ? 255 : to_integer(given[0]);
  const bool whole_words = given[1].is(ValueKind::kMissing) || !truth(given[1]);
  if (!given[2].is(ValueKind::kMissing) && !given[2].is_text()) fail("the end of truncate is not a text");
  const std::string end = given[2].is(ValueKind::kMissing) ? "..." : given[2].bytes();
  const bool has_leeway = !given[3].is(ValueKind::kMissing) && !given[3].is_none();
  const int64_t leeway = has_leeway ? to_integer(given[3]) : 5;
  if (length < points_of(end)) fail("expected length >= {}, got {}", points_of(end), length);
  if (leeway < 0) fail("expected leeway >= 0, got {}", leeway);
  if (input.is_undefined()) return input;
  if (!input.is_text()) {  // a list that is short enough stays as it is
    if (length_of(run, input) - leeway <= length) return input;
    fail("truncate needs a text, not '{}'", type_name(input));
  }
  const auto points = static_cast<int64_t>(input.as_text().length);
  if (points <= length || points - length <= leeway) return input;
  std::string_view kept = points_between(input, 0, length - points_of(end));
  if (whole_words)
    if (const size_t space = kept.rfind(' '); space != kNowhere) kept = kept.substr(0, space);
  return run.text(std::string(kept) + end);
}

Value filter_wordcount(Run& run, const Value& input, CallArguments& arguments) {
  bind("wordcount", arguments, {});
  std::string made;
  const auto text = text_view(run, input, made);
  int64_t words = 0;
  bool in_word = false;
  for (const char *p = text.data(), *end = p + text.size(); p < end;) {
    const Char c = decode_char(p, end);
    const bool is_word = c.point == '_' || python_text::is_word(python_text::traits(c.point));
    words += is_word && !in_word;
    in_word = is_word;
    p += c.length;
  }
  return Value(words);
}

Value filter_wordwrap(Run& run, const Value& input, CallArguments& arguments) {
  const auto given =
      bind("wordwrap", arguments, {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  if (!input.is_text()) fail("wordwrap needs a text, not '{}'", type_name(input));
  const auto flag = [](const Value& value) { return value.is(ValueKind::kMissing) || truth(value); };
  const bool has_end = !given[2].is(ValueKind::kMissing) && !given[2].is_none();
  const std::string end = has_end ? str_of(run, given[2]) : "\n";
  const int64_t width = given[0].is(ValueKind::kMissing) ? 79 : to_integer(given[0]);
  std::string result;
  bool first = true;
  for (const std::string_view line : split_lines(input.bytes(), false)) {
    if (!first) result += end;
    first = false;
    const auto wrapped = wrap_words(run, line, width, flag(given[1]), flag(given[3]));
    for (size_t i = 0; i < wrapped.size(); ++i) (result += i ? end : "") += wrapped[i];
    if (result.size() > run.limits().value_bytes) fail("the template builds a text that is too long");
  }
  return run.text(std::move(result));
}

Value filter_format(Run& run, const Value& input, CallArguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keywords.empty())
    fail("can't handle positional and keyword arguments at the same time");
  const Value text = soft_text(run, input);
  if (arguments.keywords.empty())
    return percent_format(run, text, run.tuple(std::move(arguments.positional)));
  DictBody named;
  for (auto& [name, value] : arguments.keywords) named.set(name, std::move(value));
  return percent_format(run, text, run.dict(std::move(named)));
}

Value filter_tojson(Run& run, const Value& input, CallArguments& arguments) {
  const auto given = bind("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = truth(given[0]);
  style.sorted = truth(given[3]);
  const bool indents = !given[1].is(ValueKind::kMissing) && !given[1].is_none();
  if (indents)
    style.indent = given[1].is_text() ? given[1].bytes() : aligned(run, "", to_integer(given[1]), '<');
  if (indents) style.item_separator = ",";
  if (!given[2].is(ValueKind::kMissing) && !given[2].is_none()) {
    const auto both = run.items_of(given[2]);
    if (both.size() != 2 || !both[0].is_text() || !both[1].is_text()) fail("separators are two texts");
    style.item_separator = both[0].bytes(), style.key_separator = both[1].bytes();
  }
  return run.text(json_text(run, input, style));
}

[[noreturn]] Value filter_refused(Run&, const Value&, CallArguments&) {
  fail("the filters random, pprint and urlize are not supported");
}

}  // namespace

std::span<const NamedFilter> text_filters() {
  static constexpr NamedFilter kFilters[] = {
      {"upper", filter_case<'u'>},   {"lower", filter_case<'l'>},     {"capitalize", filter_case<'c'>},
      {"trim", filter_trim},         {"title", filter_title},         {"string", filter_string},
      {"replace", filter_replace},   {"center", filter_center},       {"indent", filter_indent},
      {"truncate", filter_truncate}, {"wordcount", filter_wordcount}, {"wordwrap", filter_wordwrap},
      {"format", filter_format},     {"tojson", filter_tojson},       {"random", filter_refused},
      {"pprint", filter_refused},    {"urlize", filter_refused},
  };
  return kFilters;
}

}  // namespace tightloop::jinja
