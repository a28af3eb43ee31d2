#pragma once

#include <cstdint>
#include <string>

#include "train/settings/recipe.h"

namespace tightloop {

/// nanochat's rules for what follows from the size of a model, tuned at depth 12 and carried over to others.
struct DepthRules {
  static constexpr double kDataRatio = 12;                  // tokens for each parameter in matrices and head
  static constexpr int64_t kStepTokens = int64_t{1} << 19;  // of depth 12
  static constexpr double kBatchPower = 0.383;              // how the batch grows with the tokens

  int64_t tokens = 0;       // to train on
  int64_t step_tokens = 0;  // a power of two
  int64_t steps = 0;
  double lr_scale = 1;     // grows with the root of the batch
  double decay_scale = 1;  // of Muon's weight decay
};
/// `parameters` in the matrices of the blocks and in the head, and those of depth 12. A batch that is given
/// (`step_tokens` above 0) stays; rates and steps follow from it.
DepthRules depth_rules(int64_t parameters, int64_t reference, double data_ratio, int64_t step_tokens);

/// Whether the recipe or the command line sets model.depth: nanochat's one dial.
bool turns_depth_dial(const Recipe& recipe, const Config& config);
/// Sets what follows from model.depth and was not given: sizes of model and vocabulary, row length, batch,
/// optimizer, rates, weight decay, schedule and steps. `world` processes share a step. Gives a sentence about
/// it.
std::string resolve_depth(Recipe& recipe, const Config& config, int64_t world);

}  // namespace tightloop
