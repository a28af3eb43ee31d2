#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "core/device.h"
#include "train/engine/task.h"

namespace tightloop {

/// Measures a task on held-out data while it is trained. Nothing that fails there costs the run.
class Evaluator {
 public:
  Evaluator(Task& task, Device& device) : task_(task), device_(device) {}

  /// Adds to what is measured, by those who know more: how well a model translates, say.
  void also(std::function<Task::Evaluation()> more) { more_ = std::move(more); }
  /// What measures the model by a suite of tasks (eval.suite).
  void also_suite(std::function<Task::Evaluation()> suite) { suite_ = std::move(suite); }
  /// Whether there is anything to evaluate on; says so where there is not.
  void check();
  bool possible() const { return possible_; }
  /// Of several processes the main one checks, and tells the others.
  void set_possible(bool possible) { possible_ = possible; }
  /// First the held-out loss. Nothing where it could not be had: a warning says why, unless it was Ctrl-C.
  std::optional<Task::Evaluation> measure(int64_t step);
  /// The same by the suite; nothing where there is none.
  std::optional<Task::Evaluation> measure_suite(int64_t step);

 private:
  Task& task_;
  Device& device_;
  std::function<Task::Evaluation()> more_, suite_;
  bool possible_ = false;
};

}  // namespace tightloop
