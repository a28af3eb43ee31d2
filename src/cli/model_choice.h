#pragma once

#include <filesystem>
#include <string>

#include "infer/loaded_run.h"

namespace CLI {
class App;
}

namespace tightloop::cli {

/// The folder that a user names: as it is, the run of that name in runs/, or one of its checkpoints
/// ("a@best", "a@last", "a@300"; see train/run/checkpoint_name.h). It must exist; where a recipe in the
/// folder `recipes` would make such a run, the error names it.
std::string existing_run(const std::string& name, const std::filesystem::path& recipes = "configs");

/// Of the runs in runs/ the one that is trained now, or was last: what is looked at where none is named.
std::string run_to_watch();

/// The same where one of its checkpoints is named, too: the run that has it.
std::string existing_run_of(const std::string& name);

/// The options that name a trained model, the same for every verb that uses one.
struct ModelChoice {
  std::string path{}, device = "auto";
  std::optional<Precision> precision{};
  std::optional<ops::WeightFormat> weights{};

  void add_to(CLI::App& verb);
  /// The two that say where and how it computes.
  void add_device_to(CLI::App& verb);
  /// --weights, for verbs of language models.
  void add_weights_to(CLI::App& verb);
  /// What was named, or the newest run in runs/; which that is goes to the log, once.
  std::string folder() const;
  LoadedRun load() const { return load_model(folder(), device, {}, precision, weights); }

  bool by_option = false;     // --run names it, else an argument
  mutable bool said = false;  // which run it is
};

}  // namespace tightloop::cli
