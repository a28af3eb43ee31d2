#include "tokenizer/jinja/template_files.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "core/io/json_depth.h"
#include "tokenizer/jinja/jinja_template.h"

namespace tightloop {

namespace {

using Json = nlohmann::ordered_json;

/// A token as a string, or as an object with `content`; empty where it is neither.
std::string token_text(const Json& value) {
  const Json& text = value.is_object() && value.contains("content") ? value["content"] : value;
  return text.is_string() ? text.get<std::string>() : std::string();
}

Json read_object(const fs::path& path) {
  // Not simdjson: transformers writes 10 to the 30 where there is no longest text.
  Json root = Json::parse(shallow_json(read_file(path)), nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) throw data_error("{} is not a JSON object.", path.string());
  return root;
}

/// Tokens by name, in the place of others of the same name. `any`: whatever the names are.
void read_tokens(const Json& object, ChatTemplateFiles& files, bool any = false) {
  for (const auto& [name, value] : object.items()) {
    std::string text = token_text(value);
    if (text.empty() || (!any && !name.ends_with("_token"))) continue;
    std::erase_if(files.tokens, [&](const auto& token) { return token.first == name; });
    files.tokens.emplace_back(name, std::move(text));
  }
}

/// The fields of a JSON file: its templates where it has some (true), and its tokens.
bool read_json(const fs::path& path, ChatTemplateFiles& files, bool templates) {
  const Json root = read_object(path);
  read_tokens(root, files);
  for (const char* more : {"extra_special_tokens", "model_specific_special_tokens"})
    if (root.contains(more) && root[more].is_object()) read_tokens(root[more], files, /*any=*/true);
  // Before it had that field, transformers kept the tokens in a file of their own.
  const fs::path older = path.parent_path() / "special_tokens_map.json";
  if (path.filename() == "tokenizer_config.json" && !root.contains("added_tokens_decoder") && is_file(older))
    read_tokens(read_object(older), files);
  if (const auto own = root.find("tightloop"); own != root.end() && own->is_object() && own->contains("day"))
    if ((*own)["day"].is_string()) files.day = (*own)["day"].get<std::string>();
  const auto found = root.find("chat_template");
  if (!templates || found == root.end() || found->is_null()) return false;
  const auto wrong = [&] {
    return data_error(
        "{}: 'chat_template' must be a text, or a list of {{\"name\": ..., \"template\": ...}}.",
        path.string());
  };
  if (found->is_string()) {
    files.templates["default"] = found->get<std::string>();
  } else if (found->is_array()) {
    for (const Json& item : *found) {
      if (!item.is_object() || !item.contains("name") || !item.contains("template")) throw wrong();
      if (!item["name"].is_string() || !item["template"].is_string()) throw wrong();
      const std::string name = item["name"];
      if (name.empty() || name.find_first_of("/\\") != name.npos) throw wrong();  // it names a file
      files.templates[name] = item["template"].get<std::string>();
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

std::string ChatTemplateFiles::token(std::string_view name) const {
  for (const auto& [known, text] : tokens)
    if (known == name) return text;
  return {};
}

ChatTemplateFiles ChatTemplateFiles::on_day_of(std::time_t time) const {
  ChatTemplateFiles files = *this;
  for (const auto& [name, text] : templates) {
    if (text.find("strftime_now") == text.npos || !day.empty()) continue;
    char written[16];
    std::tm local{};
    localtime_r(&time, &local);
    files.day.assign(written, std::strftime(written, sizeof written, "%Y-%m-%d", &local));
  }
  return files;
}

void ChatTemplateFiles::write(const fs::path& folder) const {
  for (const auto& [name, text] : templates) {
    if (name == "default") {
      write_file_whole(folder / "chat_template.jinja", text);
    } else {
      make_folder(folder / "additional_chat_templates");
      write_file_whole(folder / "additional_chat_templates" / (name + ".jinja"), text);
    }
  }
  if (tokens.empty() && day.empty()) return;
  const fs::path path = folder / "tokenizer_config.json";
  auto config = path_exists(path) ? nlohmann::ordered_json::parse(shallow_json(read_file(path)))
                                  : nlohmann::ordered_json::object();
  for (const auto& [name, text] : tokens)
    if (!config.contains(name)) config[name] = text;
  if (!day.empty()) config["tightloop"]["day"] = day;
  if (!config.contains("tokenizer_class")) config["tokenizer_class"] = "PreTrainedTokenizerFast";
  write_file_whole(path, config.dump(2) + "\n");
}

ChatTemplateFiles find_chat_template(const fs::path& folder) {
  ChatTemplateFiles files;
  if (const fs::path file = folder / "chat_template.jinja"; is_file(file)) {
    files.templates["default"] = read_file(file);
    files.source = file.string();
  }
  for (const fs::path& file : folder_entries(folder / "additional_chat_templates"))
    if (file.extension() == ".jinja") {
      files.templates[file.stem().string()] = read_file(file);
      if (files.source.empty()) files.source = file.string();
    }
  for (const char* name : {"tokenizer_config.json", "chat_template.json"})
    if (is_file(folder / name)) read_json(folder / name, files, files.templates.empty());
  return files;
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
  files = find_chat_template(path);
  if (files.templates.empty()) {
    const fs::path inside = path / "tokenizer";  // as a run has it
    throw data_error(
        "{} has no chat template: chat_template.jinja, or 'chat_template' in tokenizer_config.json.{}",
        path.string(),
        find_chat_template(inside).templates.empty() ? ""
                                                     : fmt::format(" Did you mean '{}'?", inside.string()));
  }
  return files;
}

}  // namespace tightloop
