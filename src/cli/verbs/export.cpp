#include "infer/export.h"
#include "infer/export/export_gguf.h"

#include <CLI/App.hpp>
#include <memory>

#include "cli/add_choice.h"
#include "cli/model_choice.h"
#include "cli/verbs.h"
#include "core/error.h"
#include "core/files.h"
#include "core/io/gguf.h"
#include "core/log.h"
#include "train/run/checkpoint_name.h"

namespace tightloop::cli {

namespace {

struct ExportArguments {
  std::string run, to;
  ExportFormat format = ExportFormat::kHuggingFace;
  std::optional<GgufWeights> weights;
  std::optional<int64_t> step;
};

void write(const ExportArguments& options) {
  const std::string from = ModelChoice{.path = options.run}.folder();
  if (options.step && checkpoint_place(from).step)
    throw usage_error("'{}' is a checkpoint already, and --step names one, too: give one of them.", from);
  const bool folder = options.format == ExportFormat::kHuggingFace;
  if (folder && is_gguf_name(options.to))
    throw usage_error(
        "--to {} is the name of a GGUF file, and --format hf writes a folder. Did you mean --format gguf?",
        options.to);
  if (!folder && !is_gguf_name(options.to) && !is_folder(options.to)) {
    const auto name = fs::path(options.to).lexically_normal();
    throw usage_error("--to {}: the name of a GGUF file ends in .gguf. Say --to {}.gguf.", options.to,
                      (name.has_filename() ? name : name.parent_path()).string());
  }
  if (folder && options.weights == GgufWeights::kQ8_0)
    throw usage_error(
        "Hugging Face folders have no q8_0 here: give --format gguf with it, or another --dtype.");
  ExportOptions writing;
  writing.step = options.step;
  if (options.weights && folder) writing.dtype = dtype_of_word(std::string(name_of(*options.weights)));
  const std::string dtype = folder ? export_model(from, options.to, writing)
                                   : export_gguf(from, options.to, options.weights, options.step);
  log::info("{} is now in {}, in {}.", from, options.to, dtype);
}

}  // namespace

void add_export(CLI::App& app) {
  auto options = std::make_shared<ExportArguments>();
  auto* verb = app.add_subcommand("export", "Write a model as a Hugging Face folder, or as a GGUF file");
  verb->add_option("--run,--model", options->run,
                   "A run (also RUN@best, RUN@300: a checkpoint of it), a checkpoint's or a Hugging Face "
                   "folder, or a GGUF "
                   "file (default: the newest run in runs/)");
  verb->add_option(
          "--to", options->to,
          "The folder to write, which must not exist or be empty, or the GGUF file, which must not exist")
      ->required();
  add_choice(*verb, "--format", options->format, "What to write");
  add_choice(*verb, "--dtype", options->weights,
             "Of the weights (default: as they were imported, else bf16; of a GGUF file into a folder the "
             "narrowest that holds every tensor as it is, mostly fp32)");
  verb->add_option("--step", options->step, "Of a run: this checkpoint instead of the newest");
  verb->footer(
      "Examples:\n"
      "  tightloop export --run runs/quickstart --to quickstart-hf --dtype fp32\n"
      "  tightloop export --run runs/mine --format gguf --dtype q8_0 --to mine.gguf\n"
      "  tightloop export --model qwen3-0.6b-f16.gguf --to qwen3-0.6b");
  verb->callback([=] { write(*options); });
}

}  // namespace tightloop::cli
