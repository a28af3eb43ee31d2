#include <c10/util/Exception.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <set>
#include <sstream>

#include "cli/output.h"
#include "cli/verbs.h"
#include "core/cpu.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal.h"
#include "core/version.h"
#include "train/recipe.h"

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
    "Any setting of a recipe can be given as --section.key value; 'tightloop config' lists them.";

int say(const std::exception& error, ExitCode code) {
  terminal::clear_live();
  log::shut_down();
  std::fprintf(stderr, "%s%s\n", terminal::styled("tightloop: ", "1;31").c_str(),
               printable(error.what()).c_str());
  return static_cast<int>(code);
}

/// Takes --section.key value, --section.key=value and aliases out of the arguments: what is left is the
/// verb's own.
Settings take_settings(std::vector<std::string>& arguments) {
  Recipe recipe;
  const Config config = recipe.bind();
  Settings settings;
  std::vector<std::string> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const bool option = argument.starts_with("--") && argument.size() > 2;
    if (!option ||
        !config.is_setting(argument.substr(2, equals == std::string::npos ? equals : equals - 2))) {
      rest.push_back(argument);
      continue;
    }
    settings.push_back(argument);
    if (equals == std::string::npos && i + 1 < arguments.size()) settings.push_back(arguments[++i]);
  }
  arguments = rest;
  return settings;
}

int parse_and_run(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const Settings settings = take_settings(arguments);
  CLI::App app{kAbout, "tightloop"};
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("tightloop ") + kVersion);
  app.get_formatter()->column_width(16);
  add_train(app, settings);
  add_eval(app, settings);
  add_generate(app);
  add_chat(app, settings);
  add_inspect(app, settings);
  add_translate(app);
  add_bleu(app);
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
  const std::set<std::string> takes_settings{"train", "config", "bench", "data",    "prepare",
                                             "model", "eval",   "chat",  "inspect", "fit"};
  if (!settings.empty() && !arguments.empty() && !takes_settings.contains(arguments.front())) {
    throw usage_error("'tightloop {}' takes no settings of a recipe, such as {}.", arguments.front(),
                      settings.front());
  }
  try {
    std::ranges::reverse(arguments);  // as CLI11 wants them
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    std::ostringstream output, complaint;
    const bool good = app.exit(error, output, complaint) == 0;
    std::fputs(printable(complaint.str()).c_str(), stderr);
    put(output.str());
    return good ? 0 : static_cast<int>(ExitCode::kUsage);
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
    return say(device_error("the device is out of memory. Try a smaller --train.micro_batch with a larger "
                            "--train.accumulate. ({})",
                            error.what_without_backtrace()),
               ExitCode::kDevice);
  } catch (const std::bad_alloc& error) {
    return say(device_error("this machine is out of memory. Try a smaller --train.micro_batch or model."),
               ExitCode::kDevice);
  } catch (const c10::Error& error) {
    return say(Error(ExitCode::kFailure, error.what_without_backtrace()), ExitCode::kFailure);
  } catch (const std::exception& error) {
    return say(error, ExitCode::kFailure);
  }
}

}  // namespace tightloop::cli
