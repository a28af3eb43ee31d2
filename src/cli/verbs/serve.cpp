#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <set>

#include "cli/model_choice.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "model/model_size.h"
#include "serve/server.h"

namespace tightloop::cli {

namespace {

struct ServeArguments {
  std::vector<std::string> models;
  ModelChoice choice;  // device and precision, of all
  serve::ServeConfig config;
  Fields fields;
};

struct NamedModel {
  std::string name, folder;
};

/// "runs/a", or "name=runs/a".
NamedModel named_model(const std::string& text) {
  const size_t equals = text.find('=');
  const bool named = equals != std::string::npos && equals > 0 && !path_exists(text) &&
                     text.substr(0, equals).find('/') == std::string::npos;
  const std::string folder = existing_run(named ? text.substr(equals + 1) : text);
  if (named) return {text.substr(0, equals), folder};
  fs::path path = fs::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return {path.filename() == "." ? fs::absolute(path).parent_path().filename().string()
                                 : path.filename().string(),
          folder};
}

/// What requests must bring; empty: nothing.
std::string api_key(const std::string& file) {
  std::string key;
  if (!file.empty()) {
    key = read_file(file);
    struct stat status {};
    if (::stat(file.c_str(), &status) == 0 && (status.st_mode & (S_IRGRP | S_IROTH)))
      log::warn("'{}' can be read by other users of this machine; chmod 600 keeps the key yours.", file);
  } else if (const char* set = std::getenv("TIGHTLOOP_API_KEY")) {
    key = set;
  }
  while (!key.empty() && std::isspace(static_cast<unsigned char>(key.back()))) key.pop_back();
  const std::string from = file.empty() ? "$TIGHTLOOP_API_KEY" : fmt::format("'{}'", file);
  if (!file.empty() && key.empty()) throw usage_error("--api-key-file {} holds no key.", from);
  if (!std::ranges::all_of(key, [](unsigned char c) { return c > ' ' && c < 0x7f; }))
    throw usage_error("the API key in {} must be one line of letters, digits and signs.", from);
  return key;
}

void say_what_is_served(const serve::Server& server, const ServeArguments& options,
                        const std::vector<std::string>& models, bool key) {
  put(fmt::format("{}\n", server.url()));
  for (const auto& line : models) log::info("{}", line);
  const auto& config = options.config;
  log::info(
      "Limits: {} decoded at once, {} more may wait; answers of {} tokens at most; {:g} s a request. {}",
      config.running, config.queue, config.max_tokens, config.request_seconds,
      key ? "An API key is asked for." : "No API key is asked for.");
}

void serve_models(ServeArguments& options) {
  const auto& config = options.config;
  std::vector<NamedModel> named;
  for (const auto& text : options.models) named.push_back(named_model(text));
  if (named.empty()) named.push_back(named_model(options.choice.folder()));
  std::set<std::string> names;
  for (const auto& [name, folder] : named)
    if (!names.insert(name).second)
      throw usage_error("two models would have the name '{}'. Give one another: --model NAME={}", name,
                        folder);
  const std::string key = api_key(config.api_key_file);
  serve::Server server(config, key);  // a port in use is known before models are loaded
  const DecoderConfig decoder{.cache_tokens = config.cache_tokens,
                              .running = config.running,
                              .prefill_tokens = config.prefill_tokens,
                              .share_prefixes = !config.no_shared_prefixes};
  std::vector<std::string> lines;
  for (const auto& [name, folder] : named) {
    throw_if_interrupted();
    const SavedModel saved(folder);
    const auto& recipe = saved.recipe();
    const std::string device = tightloop::device(options.choice.device).description();
    if (recipe.model.translates()) {
      auto model = std::make_unique<serve::ServedTranslator>(
          name, load_translator(saved, options.choice.device, options.choice.precision));
      lines.push_back(
          fmt::format("{}: a translator, sentences of {} tokens, on {}", name, model->context(), device));
      server.add(std::move(model));
      continue;
    }
    LoadedRun run =
        load_model(saved, options.choice.device, options.choice.precision, options.choice.weights);
    const bool unlearned = has_seen_no_conversation(run);
    auto model = std::make_unique<serve::ServedModel>(name, std::move(run), decoder);
    if (unlearned && model->chat())
      log::warn("{} was trained on text and has seen no conversation: ask it for completions, not for chats.",
                name);
    lines.push_back(fmt::format("{}: {}, context of {} tokens, on {}", name,
                                model->chat() ? "chat form " + model->chat()->description()
                                              : "continues texts (it has learned no conversations)",
                                model->context(), device));
    server.add(std::move(model));
  }
  say_what_is_served(server, options, lines, !key.empty());
  if (!server.run(interrupted)) log::warn("Requests that did not end in time were cut off.");
  log::info("Ended.");
}

}  // namespace

void add_serve(CLI::App& app) {
  auto options = std::make_shared<ServeArguments>();
  auto* verb = app.add_subcommand("serve", "Serve models over HTTP, in the shape of OpenAI's API");
  verb->add_option("--model,--run", options->models,
                   "A run (also RUN@best, RUN@300: a checkpoint of it), a checkpoint's or a Hugging Face "
                   "folder, a GGUF "
                   "file, or NAME=ONE; may be given several times (default: the newest in runs/)")
      ->allow_extra_args(false);
  options->choice.by_option = true;
  options->choice.add_device_to(*verb);
  options->choice.add_weights_to(*verb);
  options->config.describe(options->fields);
  for (Field& field : options->fields.all()) {
    std::string name = "--" + field.name();
    std::ranges::replace(name, '_', '-');
    if (field.is_switch()) {
      verb->add_flag_function(
          name, [&field, name](int64_t) { field.set("true", name); }, field.help());
      continue;
    }
    std::string shown = field.default_text();
    std::erase(shown, '"');
    const std::string kind = field.kind();
    verb->add_option_function<std::string>(
            name, [&field, name](const std::string& text) { field.set(text, name); }, field.help())
        ->default_str(shown)
        ->type_name(kind.starts_with("integer")  ? "INT"
                    : kind.starts_with("number") ? "FLOAT"
                                                 : "TEXT");
  }
  verb->footer(
      "docs/serving.md has what can be asked, and how.\n"
      "Examples:\n"
      "  tightloop serve --model runs/mine\n"
      "  tightloop serve --model chat=runs/sft --model de=runs/multi30k --port 8080\n"
      "  curl http://127.0.0.1:8000/v1/models");
  verb->callback([=] { serve_models(*options); });
}

}  // namespace tightloop::cli
