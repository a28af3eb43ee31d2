#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja/values/limits.h"

namespace tightloop {

namespace jinja {
struct SyntaxTree;
struct DictBody;
}  // namespace jinja

/// A message, as a template sees it.
struct JinjaMessage {
  std::string_view role, text;
  std::string_view content;  // JSON that stands in the place of `text`; empty: none; "absent": no content
  std::optional<std::string_view> thinking;  // its reasoning_content
  std::string_view fields;                   // a JSON object of its other fields; empty: none
};

/// What a template is rendered with. As transformers passes them, `tools` and `documents` are none and
/// `add_generation_prompt` is false until they are set.
class JinjaVariables {
 public:
  JinjaVariables();
  ~JinjaVariables();
  JinjaVariables(JinjaVariables&&) noexcept;

  /// The fields of a JSON object, as variables. A data error that names `source` where it is none.
  void add_record(std::string_view json, const std::string& source);
  void set(std::string_view name, std::string text);
  void set(std::string_view name, bool value);
  /// JSON as a value. A data error where it is none.
  void set_json(std::string_view name, std::string_view json);
  void set_messages(std::span<const JinjaMessage> messages);
  /// Whether there is such a variable and it is not none.
  bool has(std::string_view name) const;

 private:
  friend class JinjaTemplate;
  std::unique_ptr<jinja::DictBody> values_;
};

/// A chat template of Hugging Face, parsed once. Rendering is what jinja2 does in transformers'
/// apply_chat_template(); many threads may render at once.
class JinjaTemplate {
 public:
  /// `source` is what errors name. A data error where the text is not a template.
  explicit JinjaTemplate(std::string_view text, std::string source = "the chat template",
                         const jinja::JinjaLimits& limits = {});
  ~JinjaTemplate();
  JinjaTemplate(JinjaTemplate&&) noexcept;

  struct Rendering {
    std::string text;
    /// What was written inside of {% generation %}: first byte and the one after the last, where transformers
    /// takes it to stand. Inside of a macro that is too early; `generated_texts` says what it was.
    std::vector<std::pair<size_t, size_t>> generated;
    std::vector<std::string> generated_texts;
    /// What a loop over `messages` wrote for one of them, in the order of the text.
    struct Turn {
      size_t message, begin, end;
    };
    std::vector<Turn> turns;
  };
  /// A data error where the template raises one, or goes over a limit. `now`: the time of strftime_now.
  Rendering render(const JinjaVariables& variables, std::optional<std::time_t> now = std::nullopt) const;

 private:
  std::unique_ptr<jinja::SyntaxTree> tree_;
  std::string source_;
  jinja::JinjaLimits limits_;
};

}  // namespace tightloop
