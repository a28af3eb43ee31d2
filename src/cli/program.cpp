#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <sstream>
#include <string_view>

#include "cli/command_line.h"
#include "cli/help.h"
#include "cli/last_words.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "cli/wrong_use.h"
#include "core/cpu.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/version.h"
#include "dist/fault.h"
#include "dist/processes.h"

namespace tightloop::cli {

namespace {

constexpr const char* kAbout = "Tightloop trains transformers from raw text to a finished model.";
constexpr const char* kExamples =
    "Examples:\n"
    "  tightloop train configs/quickstart.yaml              train, from a recipe\n"
    "  tightloop train configs/text.yaml --data.train F     the same on a text file of yours\n"
    "  tightloop train --resume runs/quickstart             go on where a run stopped\n"
    "  tightloop generate --run runs/quickstart --prompt 'reverse stone ='\n"
    "  tightloop chat --run runs/mine                       talk to a model that learned conversations\n"
    "Any setting of a recipe can be given as --section.key value; 'tightloop config' lists them.\n"
    "Exit codes: 0 done, 1 failed, 2 command line or settings, 3 data, 4 checkpoint, 5 device or memory,\n"
    "130 interrupted (train saves first; at once by a second Ctrl-C), 141 nobody read the output.";

/// An error of a process that has not met the others yet: they would wait for it in vain.
Error tell_others(const Error& own) {
  constexpr std::chrono::seconds kWait{8};
  try {
    return Processes(rendezvous_from_environment(), {.join = kWait}).fail(own);
  } catch (const std::exception&) {  // nobody is there
    return own;
  }
}

void add_verbs(CLI::App& app, const Settings& settings) {
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("tightloop ") + kVersion);
  app.option_defaults()->always_capture_default();
  app.formatter(std::make_shared<HelpFormatter>());
  add_train(app, settings);
  add_top(app);
  add_runs(app);
  add_eval(app, settings);
  add_generate(app);
  add_chat(app, settings);
  add_serve(app);
  add_report(app);
  add_inspect(app, settings);
  add_translate(app);
  add_bleu(app);
  add_checkpoint(app);
  add_average(app);
  add_export(app);
  add_data(app, settings);
  add_prepare(app, settings);
  add_tokenizer(app);
  add_config(app, settings);
  add_model(app, settings);
  add_fit(app, settings);
  add_bench(app, settings);
  add_doctor(app);
  add_completion(app);
}

int parse_and_run(int argc, char** argv) {
  CLI::App known{kAbout, "tightloop"};
  add_verbs(known, {});
  CommandLine line = take_apart(known, {argv + 1, argv + argc});
  CLI::App app{kAbout, "tightloop"};
  add_verbs(app, line.settings);
  try {
    std::ranges::reverse(line.words);  // as CLI11 wants them
    app.parse(line.words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw wrong_value(app, error);
    std::ostringstream output, complaint;
    app.exit(error, output, complaint);
    put(output.str() + (output.str().ends_with('\n') ? "" : "\n"));
    return 0;
  }
  finish_output();
  log::shut_down();
  return 0;
}

}  // namespace

int run(int argc, char** argv) {
  catch_interrupts();
  avoid_half_offered_amx();
  try {
    return parse_and_run(argc, argv);
  } catch (const Stop& stop) {
    log::shut_down();
    return stop.exit_code;
  } catch (const std::exception& error) {
    const Error own = last_words(error);
    const bool trains = argc > 1 && std::string_view(argv[1]) == "train";
    return say(trains && !Processes::have_met() ? tell_others(own) : own);
  }
}

}  // namespace tightloop::cli
