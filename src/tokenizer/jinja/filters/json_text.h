#pragma once

#include <optional>
#include <string>

#include "tokenizer/jinja/values/run.h"

namespace tightloop::jinja {

/// The arguments of Python's json.dumps().
struct JsonStyle {
  bool ascii = false, sorted = false;
  std::optional<std::string> indent{};
  std::string item_separator = ", ", key_separator = ": ";
};

std::string json_text(Run& run, const Value& value, const JsonStyle& style);

}  // namespace tightloop::jinja
