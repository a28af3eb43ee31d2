#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/error.h"

namespace tightloop {

/// What stands before and behind the last '@' of a name such as "runs/a@best".
struct CheckpointName {
  std::filesystem::path run;
  std::string which;
};
/// Nothing where there is no '@' with something on both sides of it.
std::optional<CheckpointName> split_checkpoint_name(const std::string& name);

/// A usage error where a new run's own name has an '@', which stands between a run and its checkpoint.
void refuse_checkpoint_name(const std::filesystem::path& run);

/// The folder that stands for a checkpoint of a run by name: "best" (train.best_by), a step, or "last": then
/// it is the run's own folder, which stands for the newest checkpoint that is whole. Errors say which there
/// are.
std::filesystem::path named_checkpoint(const CheckpointName& name);

/// A path as it is; where there is none and it is a name such as "runs/a@best", what that stands for. So a
/// folder whose own name has an '@' is that folder.
std::filesystem::path resolve_checkpoint_name(const std::filesystem::path& name);

/// The run that a folder is or, of a checkpoint's folder in a run's checkpoints/, is in.
struct CheckpointPlace {
  std::filesystem::path run;
  std::optional<int64_t> step;  // of a checkpoint's folder
};
CheckpointPlace checkpoint_place(const std::filesystem::path& folder);
/// That a checkpoint's folder is in none.
Error stray_checkpoint(const std::filesystem::path& folder);

/// The step that evaluations of a run found best so far, as its newest checkpoint that can be read knows it.
std::optional<int64_t> best_step_of(const std::filesystem::path& checkpoints);

}  // namespace tightloop
