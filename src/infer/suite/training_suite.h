#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "train/engine/task.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// Measures the model of a task by eval.suite: accuracies as eval/suite/<task>, and eval/core. Nothing where
/// the recipe names no suite. Both must outlive it. A suite that cannot be read or asked is an error here,
/// before training begins. `imported` as for stop_tokens().
std::function<Task::Evaluation()> training_suite(Task& task, const Recipe& recipe,
                                                 const std::vector<int32_t>& imported = {});

}  // namespace tightloop
