#pragma once

#include <cstdint>
#include <filesystem>

#include "train/settings/recipe.h"

namespace tightloop {

struct NaiveTimes {
  double milliseconds = 0;  // median of a step
  double tokens_s = 0;
  int64_t syncs = 0;  // in all steps
};

/// The loop that one writes first, kept for comparison: a batch is loaded by one thread when it is needed,
/// copied from ordinary memory, computed with in fp32 by ordinary operators; the loss and the gradient's norm
/// are read after every batch, every parameter is updated by itself, and memory statistics are asked for each
/// time.
/// `folder` is for what it must write, such as a tokenizer.
NaiveTimes naive_steps(const Recipe& recipe, const std::filesystem::path& folder, int64_t steps);

}  // namespace tightloop
