#include "tokenizer/jinja/values/markup.h"

#include "tokenizer/jinja/values/python_repr.h"

namespace tightloop::jinja {

std::string escape_html(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '\'':
        result += "&#39;";
        break;
      case '"':
        result += "&#34;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

Value escaped(Run& run, const Value& value) {
  if (value.is_text() && value.as_text().markup) return value;
  return run.text(escape_html(str_of(run, value)), true);
}

}  // namespace tightloop::jinja
