#pragma once

#include <functional>
#include <vector>

#include "train/engine/task.h"
#include "train/report/sample_log.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// What the model of a task is asked at every evaluation, as section `eval` says, and how it answers:
/// prompts, or else a few held-out questions, beginnings of texts or sentences to translate, always the same
/// ones. Nothing where there is nothing to ask. All must outlive it. Prompts that cannot be read, or are too
/// long, are errors here, before training begins. `imported` as for stop_tokens().
std::function<std::vector<TrainingSample>()> training_sampler(Task& task, const Recipe& recipe,
                                                              const std::vector<int32_t>& imported = {});

}  // namespace tightloop
