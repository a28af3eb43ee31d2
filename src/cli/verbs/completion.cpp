#include <CLI/App.hpp>
#include <memory>

#include "cli/command_tree.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace tightloop::cli {

void add_completion(CLI::App& app) {
  auto what = std::make_shared<std::string>();
  auto* verb = app.add_subcommand("completion", "Print a script for a shell, or the manual page");
  verb->add_option("WHAT", *what, "bash, zsh, fish or man")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish", "man"}));
  verb->footer("Example: source <(tightloop completion bash)");
  verb->group("");  // not in the help
  verb->callback([what, &app] {
    const CommandTree tree = command_tree(app);
    put(*what == "man" ? manual_page(tree) : completion_script(tree, *what));
  });
}

}  // namespace tightloop::cli
