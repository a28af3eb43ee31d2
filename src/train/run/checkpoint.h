#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "model/files/safetensors.h"

namespace tightloop {

/// All that a run needs to go on as if it had never stopped: checkpoints/step-N/ with model.safetensors (fp32
/// weights), optimizer.safetensors and state.json (the step, sizes and checksums of the other two, metadata:
/// an open set of keys that comes back as it was given, and a checksum of all that).
struct Checkpoint {
  int64_t step = 0;
  nlohmann::json metadata;
  Safetensors weights, optimizer;
};

/// Writes a checkpoint whole or not at all, also in place of one of the same step. Once it is on disk, the
/// oldest up to `step` beyond `keep` (0: none) are removed, but never that of step `best`. A process that is
/// killed or an error (disk full) leaves all older ones as they were; the next save clears up behind it.
/// One process at a time may write to `checkpoints`.
void save_checkpoint(const std::filesystem::path& checkpoints, int64_t step, const NamedTensors& weights,
                     const NamedTensors& optimizer, int64_t keep,
                     const nlohmann::json& metadata = nlohmann::json::object(), int64_t best = 0);

/// The retention of save_checkpoint by itself, for those who save with `keep` 0 and first want to know more.
/// `newest` is the step that was saved last; `replaced` goes whatever `keep` says, unless it is the best.
void remove_old_checkpoints(const std::filesystem::path& checkpoints, int64_t newest, int64_t keep,
                            int64_t best = 0, int64_t replaced = 0);

/// Replaces the metadata of a checkpoint, all at once: what became known after it was saved.
void update_metadata(const std::filesystem::path& checkpoints, int64_t step, const nlohmann::json& metadata);

/// Steps that have a checkpoint, in order.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& checkpoints);

/// The step of a checkpoint's folder by its name, where it is one.
std::optional<int64_t> checkpoint_step(const std::filesystem::path& folder);

/// Reads and verifies one. With `weights_only` the optimizer is neither. Anything damaged is a checkpoint
/// error that names the file; where `step` is not given, a damaged one is passed over with a warning and the
/// newest that is whole is taken.
Checkpoint load_checkpoint(const std::filesystem::path& checkpoints, std::optional<int64_t> step = {},
                           bool weights_only = false);

}  // namespace tightloop
