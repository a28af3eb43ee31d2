#pragma once

#include <string>
#include <string_view>

#include "tokenizer/jinja/values/run.h"

namespace tightloop::jinja {

/// Python's str() and repr(). An undefined value is the empty text; missing ones count as undefined.
std::string str_of(Run& run, const Value& value);
std::string repr_of(Run& run, const Value& value);
/// Python's ascii(): repr() with what is not ASCII escaped.
std::string ascii_of(Run& run, const Value& value);
/// The text of a text value, without a copy; of others str_of(), kept in `made`.
std::string_view text_view(Run& run, const Value& value, std::string& made);

std::string float_repr(double value);
std::string quoted_repr(std::string_view text);

}  // namespace tightloop::jinja
