#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>

#include "cli/output.h"
#include "cli/recipe.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/files.h"
#include "train/run/run_length.h"
#include "train/settings/recipe.h"

namespace tightloop::cli {

namespace {

struct ConfigArguments {
  std::string file, section;
  bool markdown = false, yaml = false;
};

/// A word such as train.lr; one in a section that there is, where it is wrong.
bool names_setting(const std::string& word, Config& config) {
  const size_t dot = word.find('.');
  return dot != std::string::npos && !path_exists(word) && config.has_section(word.substr(0, dot));
}

void show_setting(const std::string& key, Config& config) {
  const Field* field = config.field(key);
  if (!field) {
    const auto guess = config.guess(key);
    throw usage_error("there is no setting '{}'.{}", key,
                      guess ? fmt::format(" Did you mean '{}'?", *guess) : "");
  }
  put(shown(fmt::format("--{} {}\n    {} ({})\n", key, field->text(), field->help(), field->kind())));
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// The settings whose name or help has the word; empty where none has.
std::string settings_with(const std::string& word, Config& config) {
  std::string found;
  const Field* meant = config.field(word);  // also by the name that another trainer has for it
  for (const auto& section : config.sections())
    for (const auto& field : section.fields.all())
      if (const std::string name = fmt::format("{}.{}", section.name, field.name());
          &field == meant || lower(name + " " + field.help()).find(lower(word)) != std::string::npos)
        found += fmt::format("--{} {}\n    {} ({})\n", name, field.text(), field.help(), field.kind());
  return found;
}

Error unknown_word(const std::string& word, const Config& config) {
  std::vector<std::string> sections;
  for (const auto& section : config.sections()) sections.push_back(section.name);
  const auto section = nearest(word, sections), guess = section ? section : config.guess(word);
  return usage_error(
      "'{}' is no recipe and no section, and no setting has it in its name or help.{} 'tightloop config' "
      "lists all of them.",
      word, guess ? fmt::format(" Did you mean '{}'?", *guess) : "");
}

/// A part of what to_yaml() gives.
std::string section_yaml(const Config& config, const std::string& name) {
  std::string yaml = name + ":\n";
  for (const auto& section : config.sections())
    for (const auto& field : section.fields.all())
      if (section.name == name) yaml += fmt::format("  {}: {}\n", field.name(), field.text());
  return yaml;
}

void show(const ConfigArguments& options, const Settings& settings) {
  Recipe recipe;
  Config config = recipe.bind();
  if (names_setting(options.file, config)) {
    config.apply(settings);
    return show_setting(options.file, config);
  }
  std::string section = options.section;
  const bool is_word = !options.file.empty() && !path_exists(recipe_file(options.file));
  const bool is_search = is_word && section.empty() && !options.yaml && !options.markdown && settings.empty();
  if (section.empty() && is_word && config.has_section(options.file))
    section = options.file;
  else if (const auto found = is_search ? settings_with(options.file, config) : ""; !found.empty())
    return put(shown(found));
  else if (is_search && options.file.find_first_of("./") == std::string::npos)
    throw unknown_word(options.file, config);
  else if (!options.file.empty())
    config.load(recipe_file(options.file));
  config.apply(settings);
  prefer_command_line(recipe.train, config);
  follow_depth(recipe, config);
  if (options.markdown && !section.empty())
    throw usage_error("--markdown is the page of all sections: leave '{}' out.", section);
  std::string text = config.to_text(section.empty() ? std::optional<std::string>() : section);
  if (options.yaml) text = section.empty() ? config.to_yaml() : section_yaml(config, section);
  if (options.markdown) text = config.to_markdown();
  put(shown(text));
}

}  // namespace

void add_config(CLI::App& app, const Settings& settings) {
  auto options = std::make_shared<ConfigArguments>();
  auto* verb = app.add_subcommand("config", "List every setting with its value and help");
  verb->add_option(
      "FILE", options->file,
      "Show the values this recipe gives (or: the name of a section or a setting, or a word to look for)");
  verb->add_option("--section", options->section, "Only this section");
  verb->add_flag("--markdown", options->markdown, "As the page docs/configuration.md");
  verb->add_flag("--yaml", options->yaml, "As a recipe");
  verb->footer(
      "Examples:\n"
      "  tightloop config configs/quickstart.yaml --section train\n"
      "  tightloop config warmup               settings with that word in their name or help");
  verb->callback([=] { show(*options, settings); });
}

}  // namespace tightloop::cli
