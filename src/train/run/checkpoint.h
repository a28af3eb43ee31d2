#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "model/files/safetensors.h"

namespace tightloop {

/// All that a run needs to go on as if it had never stopped: checkpoints/step-N/ with model.safetensors (fp32
/// weights), optimizer.safetensors and state.json (the step, sizes and checksums of the other two, metadata:
/// an open set of keys that comes back as it was given, and a checksum of all that). The files are the same
/// whoever had which part of them in memory.
struct Checkpoint {
  int64_t step = 0;
  nlohmann::json metadata;
  Safetensors weights, optimizer;
};

/// Writes a checkpoint whole or not at all, also in place of one of the same step. A process that is killed
/// or an error (too little space on the disk, which is checked before) leaves all older ones as they were;
/// the next save clears up behind it. One process at a time may write to `checkpoints`. Calls wrote(bytes)
/// after every piece.
void save_checkpoint(const std::filesystem::path& checkpoints, int64_t step, const NamedTensors& weights,
                     const NamedTensors& optimizer, const nlohmann::json& metadata = nlohmann::json::object(),
                     const std::function<void(uint64_t)>& wrote = {});

/// The same, of files that somebody else writes: `write` is given the folder for model.safetensors and
/// optimizer.safetensors, `bytes` together, and gives what state.json says of them: by name "bytes" and
/// "xxh3" or, of a file that was written in pieces, "pieces" with "begin", "bytes" and "xxh3" of each.
using WriteFiles = std::function<nlohmann::json(const std::filesystem::path& folder)>;
void save_checkpoint_files(const std::filesystem::path& checkpoints, int64_t step, uint64_t bytes,
                           const WriteFiles& write, const nlohmann::json& metadata);
inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

/// Which checkpoints stay.
struct Retention {
  int64_t newest = 0;      // the step that was saved last: later ones could not be read, and do not count
  int64_t keep = 0;        // as many as that up to it; 0: all
  int64_t best = 0;        // this one always
  int64_t named_best = 0;  // this one, too: the best as the newest says, which may not have heard of a better
  int64_t every = 0;       // multiples of it always; 0: none
  int64_t beside = 0;      // this one stays and does not count towards `keep`
  std::vector<int64_t> replaced{};  // these go whatever `keep` says, unless they stay always
};
/// Steps that go, in order.
std::vector<int64_t> checkpoints_to_remove(const std::vector<int64_t>& steps, const Retention& retention);
/// What cannot be removed stays, with a warning.
void remove_checkpoints(const std::filesystem::path& checkpoints, const std::vector<int64_t>& steps);
void remove_old_checkpoints(const std::filesystem::path& checkpoints, const Retention& retention);

/// Of weights that 'tightloop average' made, metadata has their steps under this key.
inline constexpr const char* kAveraged = "averaged";

/// Replaces the metadata of a checkpoint, all at once: what became known after it was saved.
void update_metadata(const std::filesystem::path& checkpoints, int64_t step, const nlohmann::json& metadata);

/// What state.json says of a checkpoint, verified by its own checksum; the tensors are not read.
struct CheckpointState {
  nlohmann::json metadata, files;  // of each file its "bytes" and "xxh3"
};
CheckpointState read_checkpoint_state(const std::filesystem::path& checkpoints, int64_t step);

/// The folder that a checkpoint is in, where there is one.
std::filesystem::path checkpoint_folder(const std::filesystem::path& checkpoints, int64_t step);

/// Steps that have a checkpoint, in order.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& checkpoints);

/// The step of a checkpoint's folder by its name, where it is one.
std::optional<int64_t> checkpoint_step(const std::filesystem::path& folder);

/// Reads and verifies one. With `weights_only` the optimizer is neither. Anything damaged is a checkpoint
/// error that names the file; where `step` is not given, a damaged one is passed over with a warning and the
/// newest that is whole is taken. One that a training removes meanwhile is no problem without `step`: it has
/// a newer one.
Checkpoint load_checkpoint(const std::filesystem::path& checkpoints, std::optional<int64_t> step = {},
                           bool weights_only = false);

}  // namespace tightloop
