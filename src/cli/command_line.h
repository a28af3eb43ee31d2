#pragma once

#include <string>
#include <vector>

#include "cli/verbs.h"

namespace tightloop::cli {

/// A command line, taken apart: settings of a recipe, and what is left for the verb.
struct CommandLine {
  std::vector<std::string> words;
  Settings settings;
};

/// Takes --section.key value, --section.key=value and aliases out of the arguments. A list takes all words up
/// to the next option, except the recipe. What no verb of `app` understands is a usage error that says what
/// may be meant.
CommandLine take_apart(CLI::App& app, const std::vector<std::string>& arguments);

/// Whether --section.key goes with this verb.
bool takes_settings(const std::string& verb);

}  // namespace tightloop::cli
