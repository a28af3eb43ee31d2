#include "cli/command_tree.h"

#include <CLI/App.hpp>
#include <sstream>

#include "cli/command_line.h"
#include "train/settings/recipe.h"

namespace tightloop::cli {

namespace {

bool is_hidden(const CLI::App& verb) { return verb.get_group().empty(); }

/// What stands in "TEXT:{bf16,fp32}".
std::vector<std::string> values_in(const std::string& type) {
  std::vector<std::string> values;
  const size_t begin = type.find(":{"), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return values;
  std::istringstream list(type.substr(begin + 2, end - begin - 2));
  for (std::string value; std::getline(list, value, ',');) values.push_back(value);
  return values;
}

CommandTree::Option option_of(const CLI::Option& option) {
  CommandTree::Option one;
  one.about = option.get_description();
  for (const auto& name : option.get_snames()) one.names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) one.names.push_back("--" + name);
  one.positional = option.get_positional();
  if (one.positional) one.names = {option.get_name(true)};
  if (option.get_items_expected_max() == 0) return one;
  const std::string type = option.get_type_name();
  one.values = values_in(type);
  const std::string plain = type.substr(0, type.find(':'));
  one.placeholder = plain == "TEXT" || !one.values.empty() ? "TEXT" : plain == "FLOAT" ? "NUMBER" : "N";
  return one;
}

void add(const CLI::App& app, const std::string& path, bool settings, CommandTree& tree) {
  CommandTree::Verb verb{path, app.get_description(), app.get_footer(), {}, {}, settings};
  for (const auto* option : app.get_options())
    if (option->get_name() != "--help") verb.options.push_back(option_of(*option));
  const auto below = app.get_subcommands([](const CLI::App* one) { return !is_hidden(*one); });
  for (const auto* one : below) verb.verbs.push_back(one->get_name());
  tree.verbs.push_back(std::move(verb));
  for (const auto* one : below)
    add(*one, path.empty() ? one->get_name() : path + " " + one->get_name(),
        settings || (path.empty() && takes_settings(one->get_name())), tree);
}

CommandTree::Option setting_of(const std::string& section, const Field& field) {
  CommandTree::Option one;
  one.names.push_back("--" + section + "." + field.name());
  for (const auto& alias : field.aliases()) one.names.push_back("--" + alias);
  one.about = field.help();
  for (const auto& value : field.choices())
    if (!value.empty()) one.values.push_back(value);
  if (one.values.empty() && field.kind() == "true or false") one.values = {"true", "false"};
  one.placeholder = field.text().empty() ? "TEXT" : field.text();
  return one;
}

}  // namespace

CommandTree command_tree(const CLI::App& app) {
  CommandTree tree;
  tree.about = app.get_description();
  add(app, "", false, tree);
  Recipe recipe;
  const Config config = recipe.bind();
  for (const auto& section : config.sections()) {
    auto& ours = tree.sections.emplace_back(CommandTree::Section{section.name, section.help, {}});
    for (const Field& field : section.fields.all()) ours.settings.push_back(setting_of(section.name, field));
  }
  return tree;
}

}  // namespace tightloop::cli
