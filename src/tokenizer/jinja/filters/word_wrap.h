#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/values/run.h"

namespace tightloop::jinja {

/// Python's textwrap.wrap() with white space as it is.
std::vector<std::string> wrap_words(Run& run, std::string_view text, int64_t width, bool break_long,
                                    bool at_hyphens);

}  // namespace tightloop::jinja
