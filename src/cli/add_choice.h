#pragma once

#include <CLI/App.hpp>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/choice.h"

namespace tightloop::cli {

/// An option whose values are the names of an enum's table, or of `some` of its values. `target` is the enum,
/// or an optional one.
template <class Enum, class Target>
CLI::Option* add_choice_of(CLI::App& verb, const std::string& name, Target& target, const std::string& help,
                           std::initializer_list<Enum> some) {
  std::vector<std::string> names;
  for (const auto& choice : kChoices<Enum>)
    if (some.size() == 0 || is_one_of(choice.value, some)) names.emplace_back(choice.name);
  const auto set = [&target](const std::string& text) { target = *choice_named<Enum>(text); };
  return verb.add_option_function<std::string>(name, set, help)->check(CLI::IsMember(names));
}
template <class Enum>
CLI::Option* add_choice(CLI::App& verb, const std::string& name, Enum& target, const std::string& help,
                        std::initializer_list<Enum> some = {}) {
  return add_choice_of<Enum>(verb, name, target, help, some);
}
template <class Enum>
CLI::Option* add_choice(CLI::App& verb, const std::string& name, std::optional<Enum>& target,
                        const std::string& help, std::initializer_list<Enum> some = {}) {
  return add_choice_of<Enum>(verb, name, target, help, some);
}

}  // namespace tightloop::cli
