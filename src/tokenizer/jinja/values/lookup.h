#pragma once

#include <optional>
#include <string_view>

#include "tokenizer/jinja/values/run.h"

namespace tightloop::jinja {

/// x.name: the attribute, or the item, or an undefined value; in the sandbox's way.
Value get_attribute(Run& run, const Value& object, std::string_view name);
/// x[index]: the item, or the attribute, or an undefined value.
Value get_item(Run& run, const Value& object, const Value& index);
/// x[start:stop:step]; values that are missing were not given.
Value get_slice(Run& run, const Value& object, const Value& start, const Value& stop, const Value& step);

/// The attribute of the Python object alone: missing where it has none.
Value own_attribute(Run& run, const Value& object, std::string_view name);

// Methods of the types; missing where there is none of that name.
Value text_method(Run& run, const Value& text, std::string_view name);
Value container_method(Run& run, const Value& object, std::string_view name);

/// Bytes `begin` to `end` of a text, counted in code points.
std::string_view points_between(const Value& text, int64_t begin, int64_t end);

}  // namespace tightloop::jinja
