#pragma once

#include <string>
#include <vector>

#include "core/choice.h"

namespace CLI {
class App;
}

namespace tightloop::cli {
/// What `completion` prints.
enum class Script { kBash, kZsh, kFish, kMan };
}  // namespace tightloop::cli

template <>
inline constexpr auto tightloop::kChoices<tightloop::cli::Script> =
    std::to_array<tightloop::Choice<tightloop::cli::Script>>({
        {tightloop::cli::Script::kBash, "bash"},
        {tightloop::cli::Script::kZsh, "zsh"},
        {tightloop::cli::Script::kFish, "fish"},
        {tightloop::cli::Script::kMan, "man"},
    });

namespace tightloop::cli {

/// The command line as data, for shells and the manual: every verb with its options, every setting.
struct CommandTree {
  struct Option {
    std::vector<std::string> names;  // with their dashes, or the name of a place without any
    std::string about;
    std::vector<std::string> values;  // the only ones, where that is so
    std::string placeholder;          // of its value; empty: it takes none
    bool positional = false;
  };
  struct Verb {
    std::string path, about, footer;  // "bench step"
    std::vector<Option> options;
    std::vector<std::string> verbs;  // "step", ...: those that must follow
    bool settings = false;
  };
  struct Section {
    std::string name, about;
    std::vector<Option> settings;
  };

  std::string about;
  std::vector<Verb> verbs;
  std::vector<Section> sections;
};

CommandTree command_tree(const CLI::App& app);

/// A script that completes command lines.
std::string completion_script(const CommandTree& tree, Script shell);
/// tightloop.1
std::string manual_page(const CommandTree& tree);

}  // namespace tightloop::cli
