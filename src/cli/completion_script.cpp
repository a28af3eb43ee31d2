#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command_tree.h"
#include "core/error.h"
#include "core/terminal/terminal.h"

namespace tightloop::cli {

namespace {

std::vector<std::string> words_of(const std::vector<CommandTree::Option>& options) {
  std::vector<std::string> words;
  for (const auto& option : options)
    if (!option.positional) words.insert(words.end(), option.names.begin(), option.names.end());
  return words;
}

/// Cases that put into `found` what may follow an option.
std::string value_cases(const std::vector<CommandTree::Option>& options) {
  std::string cases;
  for (const auto& option : options)
    if (!option.values.empty())
      cases += fmt::format("    {}) found={} ;;\n", fmt::join(option.names, "|"),
                           shell_word(fmt::format("{}", fmt::join(option.values, " "))));
  return cases;
}

/// bash and zsh read the same tables: verbs, options and values by `case`.
std::string tables(const CommandTree& tree) {
  std::string verbs, options, values, settings, of_settings;
  for (const auto& verb : tree.verbs) {
    if (!verb.verbs.empty())
      verbs += fmt::format("    {}) found={} ;;\n", shell_word(verb.path),
                           shell_word(fmt::format("{}", fmt::join(verb.verbs, " "))));
    options += fmt::format("    {}) found={}{} ;;\n", shell_word(verb.path),
                           shell_word(fmt::format("{} --help", fmt::join(words_of(verb.options), " "))),
                           verb.settings ? "\" $(_tightloop_settings)\"" : "");
    if (const auto cases = value_cases(verb.options); !cases.empty())
      values += fmt::format("  [[ $1 != {} ]] || case $2 in\n{}  esac\n", shell_word(verb.path), cases);
  }
  for (const auto& section : tree.sections) {
    settings += fmt::format("  printf '%s ' {}\n", fmt::join(words_of(section.settings), " "));
    of_settings += value_cases(section.settings);
  }
  return fmt::format(
      "_tightloop_settings() {{\n{}}}\n"
      "# found: the verbs that may follow a verb\n"
      "_tightloop_verbs() {{\n  case $1 in\n{}    *) found= ;;\n  esac\n}}\n"
      "# found: the options of a verb\n"
      "_tightloop_options() {{\n  case $1 in\n{}    *) found= ;;\n  esac\n}}\n"
      "# found: the values of an option of a verb\n"
      "_tightloop_values() {{\n  found=\n  case $2 in\n{}  esac\n{}}}\n",
      settings, verbs, options, of_settings, values);
}

// The verb of a line is made of the words that are verbs, one after another.
constexpr const char* kBash = R"(_tightloop() {
  local current=${COMP_WORDS[COMP_CWORD]} previous= verb= found= i
  ((COMP_CWORD < 2)) || previous=${COMP_WORDS[COMP_CWORD - 1]}
  for ((i = 1; i < COMP_CWORD; ++i)); do
    _tightloop_verbs "$verb"
    [[ " $found " == *" ${COMP_WORDS[i]} "* ]] || break
    verb=${verb:+$verb }${COMP_WORDS[i]}
  done
  _tightloop_values "$verb" "$previous"
  if [[ -z $found && $current == -* ]]; then
    _tightloop_options "$verb"
  elif [[ -z $found ]]; then
    _tightloop_verbs "$verb"
  fi
  COMPREPLY=($(compgen -W "$found" -- "$current"))
  [[ -n $found ]] || COMPREPLY=($(compgen -f -- "$current"))
}
complete -o filenames -F _tightloop tightloop
)";

constexpr const char* kZsh = R"(_tightloop() {
  local current=${words[CURRENT]} previous=${words[CURRENT-1]} verb= found= i
  for ((i = 2; i < CURRENT; ++i)); do
    _tightloop_verbs "$verb"
    [[ " $found " == *" ${words[i]} "* ]] || break
    verb=${verb:+$verb }${words[i]}
  done
  _tightloop_values "$verb" "$previous"
  if [[ -z $found && $current == -* ]]; then
    _tightloop_options "$verb"
  elif [[ -z $found ]]; then
    _tightloop_verbs "$verb"
  fi
  if [[ -n $found ]]; then compadd -- ${=found}; else _files; fi
}
# Read by the shell's own loader, or by 'source'.
if [[ ${funcstack[1]} == _tightloop ]]; then _tightloop "$@"; else compdef _tightloop tightloop; fi
)";

std::string fish_options(const std::vector<CommandTree::Option>& options, const std::string& when) {
  std::string text;
  for (const auto& option : options) {
    if (option.positional) continue;
    std::string line = "complete -c tightloop -n " + shell_word(when, true);
    for (const auto& name : option.names)
      line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    if (!option.values.empty())
      line += " -x -a " + shell_word(fmt::format("{}", fmt::join(option.values, " ")), true);
    else if (!option.placeholder.empty())
      line += " -r";
    text += line + " -d " + shell_word(option.about, true) + "\n";
  }
  return text;
}

constexpr const char* kFish = R"(# Whether the line begins with these verbs.
function __tightloop_at
  set -l line (commandline -opc)
  set -e line[1]
  set -l count (count $argv)
  test (count $line) -ge $count; or return 1
  test $count -eq 0; or test "$line[1..$count]" = "$argv"
end
# Whether it holds these verbs and nothing else.
function __tightloop_is
  __tightloop_at $argv; and test (count (commandline -opc)) -eq (math (count $argv) + 1)
end
# Whether its verb is one of these.
function __tightloop_any
  set -l line (commandline -opc)
  test (count $line) -gt 1; and contains -- $line[2] $argv
end
)";

std::string fish(const CommandTree& tree) {
  std::string text = kFish, with_settings;
  for (const auto& verb : tree.verbs) {
    const std::string path = verb.path.empty() ? "" : " " + verb.path;
    for (const auto& other : tree.verbs) {
      const size_t space = other.path.rfind(' ');
      const std::string above = space == std::string::npos ? "" : other.path.substr(0, space);
      if (other.path.empty() || above != verb.path) continue;
      text += fmt::format("complete -c tightloop -f -n '__tightloop_is{}' -a {} -d {}\n", path,
                          other.path.substr(space + 1), shell_word(other.about, true));
    }
    text += fish_options(verb.options, (verb.path.empty() ? "__tightloop_is" : "__tightloop_at") + path);
    if (verb.settings && verb.path.find(' ') == std::string::npos) with_settings += path;
  }
  for (const auto& section : tree.sections)
    text += fish_options(section.settings, "__tightloop_any" + with_settings);
  return text;
}

}  // namespace

std::string completion_script(const CommandTree& tree, Script shell) {
  const std::string made = fmt::format("# Made by 'tightloop completion {}'.\n", tightloop::name_of(shell));
  if (shell == Script::kFish) return made + fish(tree);
  return (shell == Script::kZsh ? "#compdef tightloop\n" : "") + made + tables(tree) +
         (shell == Script::kZsh ? kZsh : kBash);
}

}  // namespace tightloop::cli
