#include <algorithm>

#include "tokenizer/jinja/filters/filters.h"
#include "tokenizer/jinja/values/markup.h"
#include "tokenizer/jinja/values/python_repr.h"
#include "tokenizer/jinja/values/text_search.h"

namespace tightloop::jinja {

namespace {

Value filter_escape(Run& run, const Value& input, CallArguments& arguments) {
  bind("escape", arguments, {});
  return escaped(run, input);
}

Value filter_force_escape(Run& run, const Value& input, CallArguments& arguments) {
  bind("forceescape", arguments, {});
  return run.text(escape_html(str_of(run, input)), true);
}

Value filter_safe(Run& run, const Value& input, CallArguments& arguments) {
  bind("safe", arguments, {});
  return run.text(str_of(run, input), true);
}

/// The entities that texts have by far the most; others stay as they are.
std::string unescape_html(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&amp;", "&"},          {"&lt;", "<"},           {"&gt;", ">"},         {"&quot;", "\""},
      {"&#39;", "'"},          {"&#34;", "\""},         {"&apos;", "'"},       {"&nbsp;", "\xC2\xA0"},
      {"&raquo;", "\xC2\xBB"}, {"&laquo;", "\xC2\xAB"}, {"&copy;", "\xC2\xA9"}};
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const auto rest = text.substr(at);
    const auto found =
        std::ranges::find_if(kEntities, [&](const auto& entity) { return rest.starts_with(entity.first); });
    if (found == std::end(kEntities)) {
      result += text[at++];
    } else {
      result += found->second;
      at += found->first.size();
    }
  }
  return result;
}

Value filter_striptags(Run& run, const Value& input, CallArguments& arguments) {
  bind("striptags", arguments, {});
  const std::string text = str_of(run, input);
  std::string kept;
  size_t at = 0;
  for (size_t open; (open = find_first(text, "<", at)) != kNowhere;) {
    const bool comment = std::string_view(text).substr(open).starts_with("<!--");
    const std::string_view end = comment ? "-->" : ">";
    const size_t close = find_first(text, end, open + (comment ? 4 : 0));
    if (close == kNowhere) break;
    kept += text.substr(at, open - at);
    at = close + end.size();
  }
  kept += text.substr(at);
  std::string words;
  for (const std::string_view word : split_at_space(kept, -1, false))
    (words += words.empty() ? "" : " ") += word;
  return run.text(unescape_html(words));
}

std::string url_quoted(Run& run, const Value& value, bool query) {
  std::string result;
  for (const char c : str_of(run, value)) {
    const auto byte = static_cast<uint8_t>(c);
    const bool plain = (byte >= '0' && byte <= '9') || ((byte | 32) >= 'a' && (byte | 32) <= 'z') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !query);
    if (plain)
      result += c;
    else if (c == ' ' && query)
      result += '+';
    else
      result += fmt::format("%{:02X}", byte);
  }
  return result;
}

Value filter_urlencode(Run& run, const Value& input, CallArguments& arguments) {
  bind("urlencode", arguments, {});
  const bool has_pairs = input.is(ValueKind::kDict) || input.is_list_or_tuple() ||
                         input.is(ValueKind::kView) || input.is(ValueKind::kIterator) || input.is_undefined();
  if (!has_pairs) return run.text(url_quoted(run, input, false));
  std::string result;
  const auto add = [&](const Value& key, const Value& value) {
    (result += result.empty() ? "" : "&") += url_quoted(run, key, true) + "=" + url_quoted(run, value, true);
  };
  if (input.is(ValueKind::kDict)) {
    for (const auto& [key, value] : input.dict().entries) add(key, value);
  } else {
    for (const Value& pair : run.items_of(input)) {
      const auto both = run.items_of(pair);
      if (both.size() != 2) fail("urlencode needs pairs of a name and a value");
      add(both[0], both[1]);
    }
  }
  return run.text(std::move(result));
}

Value filter_xmlattr(Run& run, const Value& input, CallArguments& arguments) {
  const auto given = bind("xmlattr", arguments, {"autospace"});
  if (!input.is(ValueKind::kDict)) fail("xmlattr needs a dict, not '{}'", type_name(input));
  std::string result;
  for (const auto& [key, value] : input.dict().entries) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_text()) fail("expected string or bytes-like object, got '{}'", type_name(key));
    if (key.bytes().find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      fail("Invalid character in attribute name: {}", quoted_repr(key.bytes()));
    (result += result.empty() ? "" : " ") +=
        escaped(run, key).bytes() + "=\"" + escaped(run, value).bytes() + "\"";
  }
  if ((given[0].is(ValueKind::kMissing) || truth(given[0])) && !result.empty()) result.insert(0, " ");
  return run.text(std::move(result));
}

}  // namespace

std::span<const NamedFilter> markup_filters() {
  static constexpr NamedFilter kFilters[] = {
      {"e", filter_escape},        {"escape", filter_escape},       {"forceescape", filter_force_escape},
      {"safe", filter_safe},       {"striptags", filter_striptags}, {"urlencode", filter_urlencode},
      {"xmlattr", filter_xmlattr},
  };
  return kFilters;
}

}  // namespace tightloop::jinja
