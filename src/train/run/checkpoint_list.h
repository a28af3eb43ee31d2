#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/choice.h"
#include "train/run/run_folder.h"

namespace tightloop {

/// What is known of a checkpoint's files.
enum class CheckpointHealth { kVerified, kUnverified, kDamaged };
template <>
inline constexpr auto kChoices<CheckpointHealth> = std::to_array<Choice<CheckpointHealth>>({
    {CheckpointHealth::kVerified, "verified", "all checksums matched, and nothing was written since"},
    {CheckpointHealth::kUnverified, "not yet verified", "there and of the right sizes; see 'verify'"},
    {CheckpointHealth::kDamaged, "damaged"},
});

struct CheckpointFacts {
  int64_t step = 0;
  uint64_t bytes = 0;       // of its tensors
  double age = 0;           // seconds since it was saved
  bool newest = false;      // of those that can be read
  bool best = false;        // by train.best_by
  bool kept = false;        // for ever: train.keep_every
  bool in_passing = false;  // train.save_minutes: a later one takes its place
  CheckpointHealth health = CheckpointHealth::kUnverified;
  std::string problem{};             // of a damaged one, a sentence
  nlohmann::json best_evaluation{};  // of the best one: metadata's "best"
};

/// The checkpoints of a run, oldest first, by their state.json and the sizes of their files.
std::vector<CheckpointFacts> list_checkpoints(const RunFolder& run);

/// Reads all of a checkpoint and compares checksums; a checkpoint error names the file that is damaged. Keeps
/// beside the files what was found (verified.json), which counts until one of them is written, restored or
/// copied.
void verify_checkpoint(const std::filesystem::path& checkpoints, int64_t step);

}  // namespace tightloop
