#pragma once

#include <string>
#include <string_view>

#include "support.h"
#include "tokenizer/jinja/jinja_template.h"

namespace tightloop::testing {

/// When it is, for strftime_now (tests/golden/make_chats.py says the same).
inline constexpr std::time_t kJinjaNow = 1731900000;

inline JinjaTemplate::Rendering render_jinja(std::string_view text, std::string_view record = "{}",
                                             const jinja::JinjaLimits& limits = {}) {
  JinjaVariables variables;
  variables.add_record(record, "the record");
  return JinjaTemplate(text, "T", limits).render(variables, kJinjaNow);
}

inline std::string jinja_error(std::string_view text, std::string_view record = "{}",
                               const jinja::JinjaLimits& limits = {}) {
  return error_of(ExitCode::kData, [&] { render_jinja(text, record, limits); });
}

}  // namespace tightloop::testing
