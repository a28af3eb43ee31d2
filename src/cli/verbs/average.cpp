#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <ranges>
#include <vector>

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

/// The newest checkpoints that are whole, oldest first; others are passed over with a warning.
std::vector<Checkpoint> whole_ones(const fs::path& checkpoints, const std::vector<int64_t>& steps,
                                   size_t most) {
  std::vector<Checkpoint> whole;
  for (const int64_t step : std::views::reverse(steps)) {
    throw_if_interrupted();
    if (whole.size() == most) break;
    try {
      whole.push_back(load_checkpoint(checkpoints, step, /*weights_only=*/true));
    } catch (const Error& error) {
      if (error.code() == ExitCode::kInterrupted) throw;
      log::warn("The checkpoint of step {} is passed over: {}", step, error.what());
    }
  }
  std::ranges::reverse(whole);
  return whole;
}

void average(const AverageArguments& given) {
  refuse_taken(given.output);
  const auto [folder, up_to] = checkpoint_place(existing_run(given.run));
  const AverageArguments options{folder.string(), given.output, given.last};
  const auto run = RunFolder::open(options.run);
  auto steps = checkpoint_steps(run.checkpoints());
  const std::string bound = up_to ? fmt::format(" up to step {}", *up_to) : "";
  if (up_to) std::erase_if(steps, [&](int64_t step) { return step > *up_to; });
  if (steps.size() < 2)
    throw usage_error(
        "'{}' has {}{}; averaging needs two or more. A run keeps more of them where 'tightloop train' is "
        "given --train.save_steps and a larger --train.keep_checkpoints.",
        options.run, counted(steps.size(), "checkpoint"), bound);
  const auto whole = whole_ones(run.checkpoints(), steps, options.last);
  if (whole.size() < 2)
    throw checkpoint_error("of the {} checkpoints of '{}'{} {} can be read; averaging needs two or more.",
                           steps.size(), options.run, bound, whole.empty() ? "none" : "one");
  if (static_cast<size_t>(options.last) > whole.size())
    log::info("There are {}{}, fewer than --last {}.", counted(whole.size(), "checkpoint"), bound,
              options.last);
  // Settings and tokenizer are copied: they must be the weights' own.
  const SavedModel checked(options.run, whole.back().step);
  steps.clear();
  NamedTensors mean;
  for (const Checkpoint& checkpoint : whole) {
    throw_if_interrupted();
    steps.push_back(checkpoint.step);
    size_t at = 0;
    for (const auto& [name, tensor] : checkpoint.weights.tensors) {
      const auto part = tensor.to(at::kFloat) / static_cast<double>(whole.size());
      if (steps.size() == 1)
        mean.emplace_back(name, part);
      else
        mean[at].second.add_(part);
      ++at;
    }
  }
  nlohmann::json metadata = whole.back().metadata;
  metadata[kAveraged] = steps;
  for (const char* key : {"best", "former_best", "worse", "evaluated", "passing"})
    metadata.erase(key);  // of other weights
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
  log::info("The weights of steps {}, averaged into {}.", fmt::join(steps, ", "), options.output);
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
