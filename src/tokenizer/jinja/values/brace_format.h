#pragma once

#include "tokenizer/jinja/values/run.h"

namespace tightloop::jinja {

/// Python's "{} of {name:>8}".format(...).
Value brace_format(Run& run, const Value& format, CallArguments& arguments);

}  // namespace tightloop::jinja
