#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cli/output.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/files.h"
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

void render_record(const DataRenderArguments& options) {
  if (!path_exists(options.path)) throw usage_error("--template: there is no '{}'.", options.path);
  const ChatTemplateFiles files = read_chat_template(options.path);
  JinjaVariables variables;
  files.add_tokens(variables);
  variables.add_record(one_record(read_standard_input()), "the record on standard input");
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
                   "A Hugging Face folder, its tokenizer_config.json, or a chat template")
      ->required();
  verb->add_flag("--add-generation-prompt", options->add_generation_prompt,
                 "End where the assistant is to answer");
  verb->footer(
      "The record is a JSON object on standard input: messages, perhaps tools and documents; all other "
      "fields\n"
      "are variables of the template. The text is printed as it is, without a line end of its own.\n"
      "Example: echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' |\n"
      "         tightloop data render --template models/qwen --add-generation-prompt");
  verb->callback([=] { render_record(*options); });
}

}  // namespace tightloop::cli
