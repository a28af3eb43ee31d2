#include <c10/util/Exception.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <sstream>

#include "cli/command_line.h"
#include "cli/help.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "cli/wrong_use.h"
#include "core/cpu.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/terminal.h"
#include "core/version.h"

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
    "  tightloop doctor                                     what this machine has, and what is missing\n"
    "Any setting of a recipe can be given as --section.key value; 'tightloop config' lists them.\n"
    "Exit codes: 0 done, 1 failed, 2 command line or settings, 3 data, 4 checkpoint, 5 device or memory,\n"
    "130 interrupted (train saves first; at once by a second Ctrl-C), 141 nobody read the output.";

int say(const std::exception& error, ExitCode code) {
  terminal::clear_live();
  log::shut_down();
  std::fprintf(stderr, "%s%s\n", terminal::styled("tightloop: ", "1;31").c_str(),
               printable(error.what()).c_str());
  return static_cast<int>(code);
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
  } catch (const Error& error) {
    return say(error, error.code());
  } catch (const c10::OutOfMemoryError& error) {
    return say(device_error("the device is out of memory. Try smaller batches: in training a smaller "
                            "--train.micro_batch with a larger --train.accumulate, elsewhere --batch or "
                            "--batch-tokens, where the verb has it. ({})",
                            error.what_without_backtrace()),
               ExitCode::kDevice);
  } catch (const std::bad_alloc& error) {
    return say(device_error("this machine is out of memory. Try a smaller model or batch (in training: "
                            "--train.micro_batch)."),
               ExitCode::kDevice);
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    if (what.find("allocate memory") != std::string::npos || what.find("overflow") != std::string::npos)
      return say(
          device_error("this machine has too little memory for that. Try a smaller model (model.width, "
                       "model.layers) or --train.micro_batch; 'tightloop fit RECIPE' tells what fits."),
          ExitCode::kDevice);
    return say(Error(ExitCode::kFailure, error.what_without_backtrace()), ExitCode::kFailure);
  } catch (const std::exception& error) {
    return say(error, ExitCode::kFailure);
  }
}

}  // namespace tightloop::cli
