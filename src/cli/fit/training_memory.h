#pragma once

#include <string>

#include "train/settings/memory_plan.h"
#include "train/settings/recipe.h"

namespace tightloop::cli {

/// The memory that a training needs, counted for the device that it would run on, and what there is of it.
struct TrainingMemory {
  std::string device;     // in words
  double memory;          // bytes
  std::string precision;  // bf16, fp16 or fp32
  c10::ScalarType compute;
  bool cuda;
  MemoryPlanner planner;
  MemoryChoice written;  // what the recipe says, "auto" checkpointing resolved
};

/// Of a recipe whose model is resolved. `gib`: asked about a GPU with so much memory; 0: train.memory_limit,
/// or all that train.device has. `world`: processes that train together, of which it is the one that holds
/// most.
TrainingMemory training_memory(const Recipe& recipe, double gib = 0, int64_t world = 1);

/// In MiB or GiB.
std::string memory_text(double bytes);

}  // namespace tightloop::cli
