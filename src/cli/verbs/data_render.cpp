#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cli/output.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/files.h"
#include "core/io/json_depth.h"
#include "tokenizer/jinja/jinja_template.h"
#include "tokenizer/jinja/template_files.h"

namespace tightloop::cli {

namespace {

struct DataRenderArguments {
  std::string path;
  bool add_generation_prompt = false;
};

/// The record without a byte order mark.
std::string one_record(std::string text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.erase(0, kMark.size());
  const size_t end = text.find('\n');
  if (end != text.npos && text.find_first_not_of(" \t\r\n", end) != text.npos &&
      nlohmann::json::accept(text.substr(0, end)))
    throw data_error(
        "standard input has several records, and one is rendered: head -1 FILE | tightloop data render ...");
  return text;
}

/// The fields of a record as training reads them: its chat_template_kwargs are variables, too, and tools may
/// be a text that holds JSON.
void add_record(const std::string& json, JinjaVariables& variables) {
  const std::string source = "the record on standard input";
  const auto record = nlohmann::ordered_json::parse(shallow_json(json), nullptr, /*allow_exceptions=*/false);
  const auto field = [&](const char* name) {
    return record.is_object() && record.contains(name) ? record[name] : nlohmann::ordered_json();
  };
  if (const auto kwargs = field("chat_template_kwargs"); kwargs.is_object())
    variables.add_record(kwargs.dump(), "chat_template_kwargs");
  else if (!kwargs.is_null())
    throw data_error("{}: 'chat_template_kwargs' is not an object.", source);
  variables.add_record(json, source);  // which says what is wrong with it
  const auto tools = field("tools");
  if (!tools.is_string() || tools.get<std::string>().find_first_not_of(" \t\r\n") == std::string::npos)
    return;
  const auto list = nlohmann::ordered_json::parse(shallow_json(tools.get<std::string>()), nullptr,
                                                  /*allow_exceptions=*/false);
  if (!list.is_array()) throw data_error("{}: 'tools' is a text that holds no list in JSON.", source);
  variables.set_json("tools", tools.get<std::string>());
}

void render_record(const DataRenderArguments& options) {
  if (!path_exists(options.path)) throw usage_error("--template: there is no '{}'.", options.path);
  const fs::path path = options.path, tokenizer = path / "tokenizer";  // as a run has it
  const bool of_run = path_exists(path / "config.yaml") && is_folder(tokenizer);
  if (of_run && find_chat_template(tokenizer).templates.empty())
    throw data_error(
        "the run '{}' has no chat template: its conversations are written by a built-in form (chat.form in "
        "its config.yaml). 'tightloop data show' prints what it learns from.",
        options.path);
  const ChatTemplateFiles files = read_chat_template(of_run ? tokenizer : path);
  JinjaVariables variables;
  files.add_tokens(variables);
  add_record(one_record(read_standard_input()), variables);
  if (!variables.has("messages")) throw data_error("the record on standard input has no 'messages'.");
  if (options.add_generation_prompt) variables.set("add_generation_prompt", true);
  const JinjaTemplate chat(files.choose(variables.has("tools")), files.source);
  put(shown(chat.render(variables).text));
}

}  // namespace

void add_data_render(CLI::App& data) {
  auto options = std::make_shared<DataRenderArguments>();
  auto* verb =
      data.add_subcommand("render", "Print a conversation as a model's own chat template renders it");
  verb->add_option("--template", options->path,
                   "A Hugging Face folder, its tokenizer_config.json, a run, or a chat template")
      ->required();
  verb->add_flag("--add-generation-prompt", options->add_generation_prompt,
                 "End where the assistant is to answer");
  verb->footer(
      "The record is a JSON object on standard input: messages, perhaps tools and documents; all other "
      "fields\n"
      "are variables of the template, and so is what chat_template_kwargs holds. The text is printed as it "
      "is, without a line end of its own.\n"
      "Example: echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' |\n"
      "         tightloop data render --template models/qwen --add-generation-prompt");
  verb->callback([=] { render_record(*options); });
}

}  // namespace tightloop::cli
