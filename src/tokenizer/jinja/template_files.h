#pragma once

#include <ctime>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tightloop {

class JinjaVariables;

/// The chat templates of a Hugging Face model, and the special tokens that they may name.
struct ChatTemplateFiles {
  std::string source;                                       // the file that the templates are from
  std::map<std::string, std::string> templates;             // by name; one alone is "default"
  std::vector<std::pair<std::string, std::string>> tokens;  // bos_token, eos_token, ...
  std::string day;  // what strftime_now says in a run, which began then; empty: nobody has asked for it

  bool empty() const { return templates.empty(); }
  /// The token of this name (bos_token, eos_token, ...); empty where there is none.
  std::string token(std::string_view name) const;
  /// As transformers chooses: tool_use where the record has tools, else default.
  const std::string& choose(bool has_tools) const;
  /// The tokens as variables, to be set before the record's own.
  void add_tokens(JinjaVariables& variables) const;
  /// The same, on this day where a template asks for the day.
  ChatTemplateFiles on_day_of(std::time_t time) const;
  /// Writes chat_template.jinja, additional_chat_templates and the tokens of tokenizer_config.json.
  void write(const std::filesystem::path& folder) const;
};

/// A template, a JSON file with a field `chat_template` (tokenizer_config.json, chat_template.json), or a
/// folder that holds such files: chat_template.jinja counts more, then tokenizer_config.json. Data errors
/// name the file.
ChatTemplateFiles read_chat_template(const std::filesystem::path& path);
/// Of a folder, where it may well have none: the tokens alone, or nothing.
ChatTemplateFiles find_chat_template(const std::filesystem::path& folder);

}  // namespace tightloop
