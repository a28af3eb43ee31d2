#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/error.h"

namespace tightloop::cli {

// What to say of a command line that cannot be understood: each is one sentence or two, with the right name.

/// "tightloop data check", from a verb at any depth.
std::string name_of(const CLI::App& verb);

bool is_recipe_name(const std::string& word);

Error unknown_verb(const CLI::App& parent, const std::string& word);
Error missing_verb(const CLI::App& parent);
/// `settings`: null where the verb takes none without their section.
Error unknown_option(const CLI::App& verb, const std::string& option, const Config* settings);
/// Words after the last one that the verb has a place for. `before`: the option they follow, if any.
Error unexpected_words(const CLI::App& verb, const std::vector<std::string>& words, const std::string& before,
                       const std::string& value);
/// What CLI11 found: a missing option, a wrong value.
Error wrong_value(const CLI::App& app, const CLI::ParseError& error);

}  // namespace tightloop::cli
