#include <CLI/App.hpp>
#include <memory>

#include "cli/add_choice.h"
#include "cli/command_tree.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace tightloop::cli {

void add_completion(CLI::App& app) {
  auto what = std::make_shared<Script>();
  auto* verb = app.add_subcommand("completion", "Print a script for a shell, or the manual page");
  add_choice(*verb, "WHAT", *what, "For which shell, or man")->required();
  verb->footer("Example: source <(tightloop completion bash)");
  verb->group("");  // not in the help
  verb->callback([what, &app] {
    const CommandTree tree = command_tree(app);
    put(*what == Script::kMan ? manual_page(tree) : completion_script(tree, *what));
  });
}

}  // namespace tightloop::cli
