#pragma once

#include <string_view>

#include "tokenizer/jinja/values/run.h"

namespace tightloop::jinja {

/// Python's + - * / // % **; faults where it raises an error.
Value binary(Run& run, std::string_view sign, const Value& left, const Value& right);
Value negative(const Value& value);
Value positive(const Value& value);
/// == != < <= > >= in, not in.
bool compare(Run& run, std::string_view sign, const Value& left, const Value& right);
bool contains(Run& run, const Value& container, const Value& item);
/// Python's len().
int64_t length_of(Run& run, const Value& value);

}  // namespace tightloop::jinja
