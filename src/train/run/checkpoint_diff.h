#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "train/run/checkpoint.h"
#include "train/run/run_settings.h"

namespace tightloop {

struct TensorDifference {
  std::string file{}, name{};  // "model" or "optimizer"
  double largest = 0;          // absolute difference of an element
  double relative = 0;         // norm of the difference by the norm of the first
  int64_t not_finite = 0;      // elements left out of both: they are a finite number in one alone, or in none
  std::string note{};          // where they cannot be compared: other shapes, in one of them alone
};

/// In what two checkpoints differ.
struct CheckpointDifference {
  std::vector<TensorDifference> tensors;
  size_t same = 0;  // tensors with the same numbers
  std::vector<ChangedSetting> settings;
  std::map<std::string, std::pair<nlohmann::json, nlohmann::json>> metadata;  // besides the settings
};

CheckpointDifference compare_checkpoints(const Checkpoint& a, const Checkpoint& b);

}  // namespace tightloop
