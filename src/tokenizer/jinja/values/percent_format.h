#pragma once

#include "tokenizer/jinja/values/run.h"

namespace tightloop::jinja {

/// Python's "%s of %d" % values, with %(name)s for a dict.
Value percent_format(Run& run, const Value& format, const Value& values);

}  // namespace tightloop::jinja
