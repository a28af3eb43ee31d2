#pragma once

#include <cstdint>
#include <optional>

#include "dist/processes.h"
#include "train/engine/staging.h"
#include "train/engine/task.h"
#include "train/optim/optimizer.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// The micro-batches of a task as their steps need them: staged, with the numbers of the step and one for
/// dropout. What Feed takes them from.
class StepStaging {
 public:
  StepStaging(Task& task, const Recipe& recipe, const Optimizer& optimizer, const Processes& processes,
              bool pin)
      : task_(task), recipe_(recipe), optimizer_(optimizer), processes_(processes), pin_(pin) {}

  /// Starts loading after step `done` and so many samples; there are micro-batches up to step `last`.
  void open(int64_t done, int64_t consumed, int64_t last);
  /// None after the last.
  std::optional<Staged> next();
  /// Micro-batch `index` of those that next() has given since open(), once more.
  Staged again(int64_t index);

 private:
  void set_numbers(Staged& staged) const;

  Task& task_;
  const Recipe& recipe_;
  const Optimizer& optimizer_;
  const Processes& processes_;
  const bool pin_;
  int64_t staged_ = 0, end_ = 0;  // micro-batches, counted from the start of the run
  bool warned_ = false;           // of a micro-batch in which nothing is to be learned
};

}  // namespace tightloop
