#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/device.h"
#include "core/worker.h"
#include "dist/processes.h"
#include "model/files/safetensors.h"
#include "train/run/best_evaluation.h"
#include "train/run/checkpoint.h"
#include "train/run/run_events.h"
#include "train/run/run_folder.h"
#include "train/settings/recipe.h"

namespace tightloop {

class RunFiles;
class SharedCheckpoint;
class Snapshot;

/// What a checkpoint is made of, besides the history.
struct RunSnapshot {
  NamedTensors weights{}, optimizer{};
  bool fresh = false;  // they are copies already, which nobody changes
  /// Of several processes each writes what it has of these, and the main one the rest; null: it has all.
  std::shared_ptr<SharedCheckpoint> shared{};
  NamedTensors frozen{};    // weights that training does not change, and that are not copied
  int64_t consumed = 0;     // samples that all processes have had
  nlohmann::json totals{};  // see Progress
  bool evaluates = false;   // on held-out data
};

/// What a run has saved, what evaluations found, and which checkpoints may go. Each of several processes has
/// one; the main one writes, from a copy and on a thread of its own, so that training goes on; the others
/// help where the state is sharded. All that it does with checkpoints it does there, in the order in which it
/// was asked for.
class RunHistory {
 public:
  /// `recipe` is the trainer's, completed as it is resolved.
  RunHistory(const RunFolder& run, Recipe& recipe, Processes& processes, Device& device);
  ~RunHistory();

  /// What checkpoints say about this run: stage, parent, adapters, ...
  nlohmann::json& metadata() { return metadata_; }
  const nlohmann::json& metadata() const { return metadata_; }

  /// Goes on with what a checkpoint knows; what is in metadata() already counts.
  void go_on_from(const Checkpoint& checkpoint);
  /// Keeps where the run comes from (see origin_of()), once its recipe is resolved. Evaluations that the
  /// checkpoint it goes on from knows are forgotten where those to come measure something else.
  void keep_origin(const Checkpoint* from);
  /// Why they were, for the user; empty where they were not.
  const std::string& compares_anew() const { return compares_anew_; }
  /// Steps begin: a folder that is removed from here on is made again at the next save.
  void begin();

  /// Tells of something that happened; the main process writes it.
  void note(int64_t step, RunEvent event, const std::string& text,
            const nlohmann::json& more = nlohmann::json::object());

  /// Whether train.save_minutes have passed, as the main process counts them.
  bool save_is_due(int64_t step) const;
  /// Begins to save, once the save before is done, and waits for it where it is the `last`. A failure is a
  /// warning unless it was the last chance. Of checkpoints that are made in `passing`, because of
  /// train.save_minutes between those of train.save_steps, the newest two stay until the next one that is
  /// not. The main process is asked for its `state`; all are where the state is `shared`.
  void save(int64_t step, const std::function<RunSnapshot()>& state, bool last, bool passing,
            bool shared = false);
  /// The last step that was or is being saved.
  int64_t saved() const { return saved_; }
  /// Waits for what is being saved. Before anything that may fail.
  void wait();
  /// The same; whether there was any, and with it a copy of the weights.
  bool wait_for_copy();
  /// The same, before a step that will be saved: a crash then costs the save under way, and never two.
  bool wait_before_next();
  /// Whether the newest save failed, once it was waited for. Of the main process.
  bool save_failed() { return outcome().error != nullptr; }
  /// The newest checkpoint that is on disk, once it was waited for; 0: none. Of the main process.
  int64_t on_disk() const { return on_disk_; }
  /// The same at the end; the error of the newest save where that failed.
  void finish();

  /// The run returns to its newest checkpoint because of what happened in step `from`, and goes on with the
  /// data after `consumed` samples. The checkpoint is told, so that a resumed run does the same: where that
  /// fails, with a warning, nothing has changed and the answer is false. An error after kMostRollbacks to the
  /// same one.
  static constexpr int64_t kMostRollbacks = 3;
  bool roll_back(const Checkpoint& checkpoint, int64_t from, int64_t consumed);

  /// Keeps what the evaluation of a step found in metadata() and, where the step was saved, in its
  /// checkpoint.
  void keep_evaluation(int64_t step, const Measured& measured);
  int64_t evaluated() const { return evaluated_; }  // the last step that was
  /// The best evaluation yet, and whether train.patience or more came after it.
  const BestEvaluation& best() const { return best_; }
  bool patience_is_over() const {
    return recipe_.train.patience > 0 && best_.worse() >= recipe_.train.patience;
  }

  /// Whether there may be checkpoints to remove, once the weights of the newest are known to be good: a loss
  /// that was computed with them is, in the next step or on held-out data.
  bool removal_is_due() const { return removal_is_due_; }
  /// Removes checkpoints beyond train.keep_checkpoints.
  void remove_old();

 private:
  /// What a save needs of this object at the moment it is asked for.
  struct Order;
  /// What was the best by a checkpoint of step `until` is no best of what is to come.
  void forget_best(int64_t until);
  /// Sorts out which checkpoints made in passing the next save leaves, once the one before is done.
  void plan_passing(int64_t step, bool passing);
  /// Nothing where the save is waited for.
  std::optional<Snapshot> copy_of(const RunSnapshot& state, bool last);
  /// On the worker's thread.
  void write(const Order& order);
  /// Of a process that is not the main one.
  void help(const Order& order);
  /// Gives the run that it wrote to. What a user can do about a last one that failed is in its error.
  RunFolder write_checkpoint(const Order& order);
  /// How the newest save that is done ended.
  struct Outcome {
    int64_t step = 0;
    std::exception_ptr error;
  };
  Outcome outcome();
  const RunFolder run_;
  Recipe& recipe_;
  Processes& processes_;
  Device& device_;
  RunEvents events_;
  nlohmann::json metadata_ = nlohmann::json::object();
  nlohmann::json origin_ = nlohmann::json::object();  // of the main process
  std::unique_ptr<RunFiles> files_;                   // of the main process, while it trains
  BestEvaluation best_{recipe_.train.best_by};
  int64_t evaluated_ = 0, saved_ = 0;
  std::chrono::steady_clock::time_point save_tried_;
  std::chrono::steady_clock::duration waited_before_{};  // the next save
  bool removal_is_due_ = false;
  std::vector<int64_t> passing_;   // checkpoints that were made in passing, before the newest
  std::vector<int64_t> replaced_;  // those of them whose place it takes
  int64_t beside_ = 0;             // the one of them that stays; 0: none
  bool told_of_waiting_ = false;
  std::string compares_anew_;
  std::mutex mutex_;
  Outcome outcome_;         // by the mutex
  int64_t on_disk_ = 0;     // of the worker: the newest checkpoint
  int64_t named_best_ = 0;  // of the worker: the best one as that says; 0: none
  // The best of evaluations that cannot be compared with this run's, and the last step that knows it: kept
  // until there is another. Checkpoints say so, too ("former_best").
  int64_t former_best_ = 0, former_until_ = 0;
  std::atomic<uint64_t> written_{0};  // bytes of the save under way
  uint64_t bytes_ = 0;                // of a checkpoint
  Worker worker_;                     // last: its thread uses all of the above
};

/// Samples that the steps of a checkpoint had consumed. One that does not say: by the settings that the run
/// had, whose config.yaml is still theirs.
int64_t samples_consumed(const Checkpoint& checkpoint, const RunFolder& run, Processes& processes);

}  // namespace tightloop
