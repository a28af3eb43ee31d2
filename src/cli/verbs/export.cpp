#include "infer/export.h"

#include <CLI/App.hpp>
#include <memory>

#include "cli/add_choice.h"
#include "cli/model_choice.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/log.h"
#include "train/run/checkpoint_name.h"

namespace tightloop::cli {

namespace {

struct ExportArguments {
  std::string run, to;
  ExportOptions writing;
};

void write(const ExportArguments& options) {
  const std::string from = ModelChoice{.path = options.run}.folder();
  if (options.writing.step && checkpoint_place(from).step)
    throw usage_error("'{}' is a checkpoint already, and --step names one, too: give one of them.", from);
  const auto dtype = export_model(from, options.to, options.writing);
  log::info("{} is now in {}, in {}.", from, options.to, dtype);
}

}  // namespace

void add_export(CLI::App& app) {
  auto options = std::make_shared<ExportArguments>();
  auto* verb = app.add_subcommand("export", "Write a model as a Hugging Face folder");
  verb->add_option(
      "--run,--model", options->run,
      "A run (also RUN@best, RUN@300: a checkpoint of it), a checkpoint's or a Hugging Face folder "
      "(default: the newest run in runs/)");
  verb->add_option("--to", options->to, "The folder to write; it must not exist or be empty")->required();
  add_choice(*verb, "--dtype", options->writing.dtype,
             "Of the weights (default: as they were imported, else bf16)");
  verb->add_option("--step", options->writing.step, "Of a run: this checkpoint instead of the newest");
  verb->footer("Example: tightloop export --run runs/quickstart --to quickstart-hf --dtype fp32");
  verb->callback([=] { write(*options); });
}

}  // namespace tightloop::cli
