#pragma once

#include <string>
#include <vector>

#include "train/run/checkpoint.h"
#include "train/run/run_folder.h"
#include "train/settings/recipe.h"

namespace tightloop {

struct Dataset;

struct ResumeOptions {
  std::vector<std::string> settings;  // from the command line, as Config::apply takes them
  bool accept_changed_data = false;
};

/// How a run goes on.
struct Resumption {
  Recipe recipe;
  std::vector<std::string> notes;  // what changes, "was, is", for people
  Recipe was;                      // the settings of the checkpoint
  std::string nothing_to_do;       // why there is no step left to train, and how to train longer; else empty
};

/// Checks all that can be checked before anything of the run is touched: config.yaml and tokenizer against
/// the checkpoint, the settings that are to change (usage errors list those that may not), and the data files
/// (a data error lists those that hold something else, unless that is accepted).
Resumption check_resume(const RunFolder& run, const Checkpoint& checkpoint, const ResumeOptions& options);

/// The same of a run whose steps follow from train.epochs, which is known once its data is loaded: `recipe`
/// has train.steps. Adds a note where the rate goes up.
void check_resumed_epochs(const Recipe& recipe, const RunFolder& run, const Checkpoint& checkpoint,
                          Resumption& resumption);

/// A data error, with what to do about it, where a file that the run was trained on is not there.
void require_run_files(const DataConfig& data, const RunFolder& run);

/// One sentence of warning where files hold something else than what a checkpoint was trained on: what is
/// measured on them cannot be compared with what the run measured.
void warn_of_changed_data(const DataConfig& data, const nlohmann::json& metadata);

/// Keeps for checkpoints, as `documents`, how many documents and tokens the files have become.
void keep_counts(const Dataset& dataset, nlohmann::json& metadata);
/// Compares them, once the data is loaded: `metadata` is what keep_counts() wrote now. A data error says
/// "were, are", unless that is accepted; then notes for people do.
std::vector<std::string> check_counts(const RunFolder& run, const Checkpoint& checkpoint,
                                      const nlohmann::json& metadata, const ResumeOptions& options);

}  // namespace tightloop
