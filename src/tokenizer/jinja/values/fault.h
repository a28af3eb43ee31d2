#pragma once

#include <fmt/format.h>

#include <utility>

#include "tokenizer/jinja/values/value.h"

namespace tightloop::jinja {

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateFault{fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace tightloop::jinja
