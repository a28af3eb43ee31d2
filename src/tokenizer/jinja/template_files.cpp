#include "tokenizer/jinja/template_files.h"

#include <simdjson.h>

#include "core/error.h"
#include "core/files.h"
#include "core/io/json_depth.h"

namespace tightloop {

namespace {

namespace json = simdjson::dom;

/// A token as a string, or as an object with `content`; empty where it is neither.
std::string token_text(json::element value) {
  std::string_view text;
  if (value.is_string()) return std::string(value.get_string().value_unsafe());
  if (value.is_object() && !value["content"].get(text)) return std::string(text);
  return {};
}

/// The fields of a JSON file: its templates where it has some (true), and its tokens.
bool read_json(const fs::path& path, ChatTemplateFiles& files, bool templates) {
  const simdjson::padded_string bytes(shallow_json(read_file(path)));
  json::parser parser;
  json::object root;
  if (const auto error = parser.parse(bytes).get(root))
    throw data_error("{} is not a JSON object: {}.", path.string(), simdjson::error_message(error));
  for (const auto [name, value] : root)
    if (name.ends_with("_token"))
      if (std::string text = token_text(value); !text.empty())
        files.tokens.emplace_back(name, std::move(text));
  json::element found;
  if (!templates || root["chat_template"].get(found) || found.is_null()) return false;
  const auto wrong = [&] {
    return data_error(
        "{}: 'chat_template' must be a text, or a list of {{\"name\": ..., \"template\": ...}}.",
        path.string());
  };
  if (found.is_string()) {
    files.templates["default"] = found.get_string().value_unsafe();
  } else if (found.is_array()) {
    const json::array list = found.get_array().value_unsafe();
    for (const auto item : list) {
      std::string_view name, text;
      if (item["name"].get(name) || item["template"].get(text)) throw wrong();
      files.templates[std::string(name)] = text;
    }
  } else {
    throw wrong();
  }
  files.source = path.string();
  return true;
}

}  // namespace

const std::string& ChatTemplateFiles::choose(bool has_tools) const {
  const auto tool_use = templates.find("tool_use"), usual = templates.find("default");
  if (has_tools && tool_use != templates.end()) return tool_use->second;
  if (usual != templates.end()) return usual->second;
  std::string names;
  for (const auto& [name, text] : templates) names += (names.empty() ? "" : ", ") + name;
  throw data_error("{} has chat templates ({}), but none is named 'default'.", source, names);
}

void ChatTemplateFiles::add_tokens(JinjaVariables& variables) const {
  for (const auto& [name, text] : tokens) variables.set(name, text);
}

ChatTemplateFiles read_chat_template(const fs::path& path) {
  ChatTemplateFiles files;
  if (!is_folder(path)) {
    if (path.extension() != ".json") {
      files.templates["default"] = read_file(path);
      files.source = path.string();
    } else if (!read_json(path, files, true)) {
      throw data_error("{} has no 'chat_template'.", path.string());
    }
    return files;
  }
  if (const fs::path file = path / "chat_template.jinja"; is_file(file)) {
    files.templates["default"] = read_file(file);
    files.source = file.string();
  }
  for (const fs::path& file : folder_entries(path / "additional_chat_templates"))
    if (file.extension() == ".jinja") {
      files.templates[file.stem().string()] = read_file(file);
      if (files.source.empty()) files.source = file.string();
    }
  for (const char* name : {"tokenizer_config.json", "chat_template.json"})
    if (is_file(path / name)) read_json(path / name, files, files.templates.empty());
  if (files.templates.empty())
    throw data_error(
        "{} has no chat template: chat_template.jinja, or 'chat_template' in tokenizer_config.json.",
        path.string());
  return files;
}

}  // namespace tightloop
