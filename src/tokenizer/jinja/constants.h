#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/jinja/values/value.h"

namespace tightloop::jinja {

/// The bytes of the number that a text begins with (a digit). After a dot it cannot have a fraction: x.1.2.
size_t number_size(std::string_view text, bool after_dot);
/// Its value; nothing where it is out of range.
std::optional<Value> number_value(std::string_view number);

/// The bytes of the quoted string that a text begins with; 0 where it has no end.
size_t quoted_size(std::string_view text);
/// What is between the quotes, with Python's escapes resolved; nothing, and why, where one is wrong.
std::optional<std::string> unquoted(std::string_view text, std::string& why);

}  // namespace tightloop::jinja
