#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>

#include "cli/at_least.h"
#include "cli/model_choice.h"
#include "cli/verbs.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "core/log.h"
#include "core/terminal/progress_line.h"
#include "train/run/checkpoint.h"
#include "train/run/checkpoint_name.h"
#include "train/run/run_folder.h"
#include "train/run/saved_model.h"

namespace tightloop::cli {

namespace {

struct AverageArguments {
  std::string run, output;
  size_t last = 5;
};

/// Before anything is read: a new run takes the place of nothing.
void refuse_taken(const std::string& output) {
  refuse_checkpoint_name(output);
  if (path_exists(output) && (!is_folder(output) || !folder_entries(output).empty()))
    throw usage_error("'{}' exists already. Choose another --output.", output);
}

void average(const AverageArguments& given) {
  refuse_taken(given.output);
  const auto [folder, up_to] = checkpoint_place(existing_run(given.run));
  const AverageArguments options{folder.string(), given.output, given.last};
  const SavedModel checked(options.run);  // settings and tokenizer are copied: they must be the weights' own
  const auto run = RunFolder::open(options.run);
  auto steps = checkpoint_steps(run.checkpoints());
  if (up_to) std::erase_if(steps, [&](int64_t step) { return step > *up_to; });
  if (steps.size() < 2)
    throw usage_error(
        "'{}' has {}{}; averaging needs two or more. A run keeps more of them where 'tightloop train' is "
        "given "
        "--train.save_steps and a larger --train.keep_checkpoints.",
        options.run, counted(steps.size(), "checkpoint"), up_to ? fmt::format(" up to step {}", *up_to) : "");
  steps.erase(steps.begin(), steps.end() - static_cast<ptrdiff_t>(std::min(options.last, steps.size())));
  NamedTensors mean;
  nlohmann::json metadata;
  for (const int64_t step : steps) {
    throw_if_interrupted();
    auto checkpoint = load_checkpoint(run.checkpoints(), step, /*weights_only=*/true);
    metadata = checkpoint.metadata;
    size_t at = 0;
    for (const auto& [name, tensor] : checkpoint.weights.tensors) {
      const auto part = tensor.to(at::kFloat) / static_cast<double>(steps.size());
      if (step == steps.front())
        mean.emplace_back(name, part);
      else
        mean[at].second.add_(part);
      ++at;
    }
  }
  metadata["averaged"] = steps;
  for (const char* key : {"best", "worse", "evaluated", "passing"}) metadata.erase(key);  // of other weights
  const auto output = RunFolder::create(options.output, /*overwrite=*/false);
  try {
    for (const auto& name : {"config.yaml", "tokenizer", "tokenizer_target"})
      if (path_exists(run.root() / name)) copy_path(run.root() / name, output.root() / name);
    ProgressLine progress(fmt::format("Saving step {}", steps.back()), bytes_of(mean));
    save_checkpoint(output.checkpoints(), steps.back(), mean, {}, metadata,
                    [&](uint64_t bytes) { progress.add(bytes); });
  } catch (...) {
    output.discard();
    throw;
  }
  log::info("The weights of steps {} to {}, {} checkpoints, averaged into {}.", steps.front(), steps.back(),
            steps.size(), options.output);
}

}  // namespace

void add_average(CLI::App& app) {
  auto options = std::make_shared<AverageArguments>();
  auto* verb =
      app.add_subcommand("average", "Average the weights of a run's last checkpoints into a new run");
  verb->add_option("--run", options->run, "Folder of a run; of RUN@300 the last checkpoints up to that one")
      ->required();
  verb->add_option("--last", options->last, "Checkpoints to average")->check(at_least(2));
  verb->add_option("--output", options->output, "Folder of the new run")->required();
  verb->footer("Example: tightloop average --run runs/translate-multi30k --last 5 --output runs/averaged");
  verb->callback([=] { average(*options); });
}

}  // namespace tightloop::cli
