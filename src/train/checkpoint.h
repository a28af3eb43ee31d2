#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "model/safetensors.h"

namespace tightloop {

/// All that a run needs to go on as if it had never stopped: checkpoints/step-N/ with model.safetensors (fp32
/// weights), optimizer.safetensors and state.json (the step, and sizes and checksums of the other two).
struct Checkpoint {
  int64_t step = 0;
  Safetensors weights, optimizer;
};

/// Writes a checkpoint whole or not at all, then removes the oldest beyond `keep` (0: none). An error while
/// writing (disk full) leaves all older ones as they were.
void save_checkpoint(const std::filesystem::path& checkpoints, int64_t step, const NamedTensors& weights,
                     const NamedTensors& optimizer, int64_t keep);

/// Steps that have a checkpoint, in order.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& checkpoints);

/// Reads and verifies one; the newest where `step` is not given. With `weights_only` the optimizer is left
/// out. Anything damaged is a checkpoint error that names the file.
Checkpoint load_checkpoint(const std::filesystem::path& checkpoints, std::optional<int64_t> step = {},
                           bool weights_only = false);

}  // namespace tightloop
