#pragma once

#include <string>
#include <string_view>

#include "tokenizer/jinja/values/run.h"

namespace tightloop::jinja {

/// Text in which < > & ' " are entities.
std::string escape_html(std::string_view text);
/// markupsafe's escape(): marked as escaped; what is marked already stays.
Value escaped(Run& run, const Value& value);

}  // namespace tightloop::jinja
