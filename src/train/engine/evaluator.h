#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "dist/processes.h"
#include "train/engine/task.h"

namespace tightloop {

/// Something to measure that is split over processes: what each counts of its share is added up.
struct SplitMeasure {
  /// As many counts in every process.
  std::function<std::vector<int64_t>(int rank, int world)> count;
  /// What all counts together come to.
  std::function<Task::Evaluation(const std::vector<int64_t>& counts)> values;
};

/// Measures a task on held-out data while it is trained, in all processes at once, each its share. Nothing
/// that fails there costs the run: what fails in one is missing in all, with a warning of the main process.
class Evaluator {
 public:
  Evaluator(Task& task, Device& device, Processes& processes)
      : task_(task), device_(device), processes_(processes) {}

  /// Adds to what is measured, by those who know more: how well a model translates, say.
  void also(SplitMeasure split) { split_ = std::move(split); }
  /// The same of what the main process measures alone.
  void also(std::function<Task::Evaluation()> more) { more_ = std::move(more); }
  /// What measures the model by a suite of tasks (eval.suite), of the main process.
  void also_suite(std::function<Task::Evaluation()> suite) { suite_ = std::move(suite); }
  /// Whether there is anything to evaluate on; says so where there is not.
  void check();
  bool possible() const { return possible_; }
  /// Of several processes the main one checks, and tells the others.
  void set_possible(bool possible) { possible_ = possible; }

  struct Measured {
    /// First the held-out loss, which all processes know; nothing where it could not be had. The main process
    /// has the rest.
    std::optional<Task::Evaluation> values{};
    int64_t tokens = 0;        // that the held-out loss is over
    bool interrupted = false;  // by a signal, in some process; there are no values
  };
  Measured measure(int64_t step);
  /// By the suite; nothing where there is none.
  std::optional<Task::Evaluation> measure_suite(int64_t step);

 private:
  /// Does `share` in all processes. Whether it was done everywhere; a warning says why not, unless it was a
  /// signal.
  bool share(int64_t step, const char* what, Measured& measured, const std::function<void()>& share);
  /// Tells of a failure and makes room.
  void failed(int64_t step, const char* what, const std::string& why);

  Task& task_;
  Device& device_;
  Processes& processes_;
  SplitMeasure split_;
  std::function<Task::Evaluation()> more_, suite_;
  bool possible_ = false;
};

}  // namespace tightloop
