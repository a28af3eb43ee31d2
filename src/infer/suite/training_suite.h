#pragma once

#include <functional>

#include "train/engine/task.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// Measures the model of a task by eval.suite: accuracies as eval/suite/<task>, and eval/core. Nothing where
/// the recipe names no suite. Both must outlive it. A suite that cannot be read or asked is an error here,
/// before training begins.
std::function<Task::Evaluation()> training_suite(Task& task, const Recipe& recipe);

}  // namespace tightloop
