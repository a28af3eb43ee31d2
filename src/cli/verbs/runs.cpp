#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <cstdlib>
#include <memory>
#include <vector>

#include "cli/model_choice.h"
#include "cli/output.h"
#include "cli/run_table.h"
#include "cli/verbs.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/files.h"
#include "core/terminal/terminal.h"
#include "train/run/run_events.h"

namespace tightloop::cli {

namespace {

constexpr size_t kShownRuns = 20;
constexpr int kPageWidth = 80;

struct RunsArguments {
  std::vector<std::string> folders;
  std::vector<std::string> compare;
  bool json = false, all = false;
};

void show_runs(const RunsArguments& options) {
  const double now = unix_time();
  const bool typed = ::isatty(STDOUT_FILENO);
  const int width = typed ? terminal::columns() : kPageWidth;
  if (options.folders.size() > 1)
    throw usage_error(
        "one folder, or one run, at a time. Two runs side by side: tightloop runs --compare {} {}",
        shell_word(options.folders[0]), shell_word(options.folders[1]));
  if (!options.compare.empty()) {
    if (options.compare.size() != 2)
      throw usage_error("--compare takes two runs, not {}.", options.compare.size());
    const std::string one = existing_run_of(options.compare[0]), other = existing_run_of(options.compare[1]);
    put(options.json ? dump(compared_json(one, other, now)) + "\n"
                     : shown(compared_table(one, other, width, now)));
    return;
  }
  const std::string folder = options.folders.empty()         ? "runs"
                             : is_folder(options.folders[0]) ? options.folders[0]
                                                             : existing_run_of(options.folders[0]);
  if (!is_folder(folder) && (folder != "runs" || path_exists(folder)))
    throw usage_error("there is no folder '{}' with runs.", folder);
  auto runs = list_runs(folder);
  const size_t found = runs.size();
  if (!options.all && found > kShownRuns) runs.resize(kShownRuns);
  if (options.json) return put(dump(runs_json(runs, now)) + "\n");
  if (found == 0)
    return put(
        fmt::format("There is no run in '{}' yet. 'tightloop train RECIPE' makes one.\n", shown(folder)));
  put(runs_table(runs, width, now, typed && !std::getenv("NO_COLOR"), /*whole_reasons=*/!typed));
  if (found > runs.size())
    put(fmt::format("and {} (--all shows {})\n", counted(found - runs.size(), "older run"),
                    found - runs.size() == 1 ? "it" : "them"));
}

}  // namespace

void add_runs(CLI::App& app) {
  auto options = std::make_shared<RunsArguments>();
  auto* verb = app.add_subcommand("runs", "List runs and how they stand, or compare two of them");
  verb->add_option("FOLDER", options->folders, "The folder that holds the runs (default: runs), or one run");
  verb->add_flag("--all", options->all, "All runs, not the 20 that were changed last");
  verb->add_option("--compare", options->compare,
                   "Two runs: the settings that differ, and their results side by side")
      ->expected(1, 100);
  verb->add_flag("--json", options->json, "For programs");
  verb->footer(
      "Examples:\n"
      "  tightloop runs                        what is in runs/, what was changed last first\n"
      "  tightloop runs /data/runs --all       another folder, every run of it\n"
      "  tightloop runs --compare first second two runs side by side\n"
      "  tightloop runs --json");
  verb->callback([=] { show_runs(*options); });
}

}  // namespace tightloop::cli
