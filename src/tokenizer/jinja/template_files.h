#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja/jinja_template.h"

namespace tightloop {

/// The chat templates of a Hugging Face model, and the special tokens that they may name.
struct ChatTemplateFiles {
  std::string source;                                       // the file that the templates are from
  std::map<std::string, std::string> templates;             // by name; one alone is "default"
  std::vector<std::pair<std::string, std::string>> tokens;  // bos_token, eos_token, ...

  /// As transformers chooses: tool_use where the record has tools, else default.
  const std::string& choose(bool has_tools) const;
  /// The tokens as variables, to be set before the record's own.
  void add_tokens(JinjaVariables& variables) const;
};

/// A template, a JSON file with a field `chat_template` (tokenizer_config.json, chat_template.json), or a
/// folder that holds such files: chat_template.jinja counts more, then tokenizer_config.json. Data errors
/// name the file.
ChatTemplateFiles read_chat_template(const std::filesystem::path& path);

}  // namespace tightloop
