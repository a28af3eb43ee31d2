#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "dist/processes.h"
#include "model/files/safetensors.h"
#include "train/run/checkpoint.h"
#include "train/run/run_events.h"
#include "train/run/run_files.h"
#include "train/run/run_folder.h"
#include "train/settings/recipe.h"

namespace tightloop {

/// What a checkpoint is made of, besides the history.
struct RunState {
  NamedTensors weights, optimizer;
  int64_t consumed = 0;    // samples that all processes have had
  bool evaluates = false;  // on held-out data
};

/// What a run has saved, what evaluations found, and which checkpoints may go. Each of several processes has
/// one; the main one writes.
class RunHistory {
 public:
  /// `recipe` is the trainer's, completed as it is resolved.
  RunHistory(const RunFolder& run, Recipe& recipe, Processes& processes)
      : run_(run), recipe_(recipe), processes_(processes), events_(run.events()) {}

  /// What checkpoints say about this run: stage, parent, adapters, ...
  nlohmann::json& metadata() { return metadata_; }
  const nlohmann::json& metadata() const { return metadata_; }

  /// Goes on with what a checkpoint knows; what is in metadata() already counts.
  void go_on_from(const Checkpoint& checkpoint);
  /// Keeps where the run comes from (see origin_of()), once its recipe is resolved.
  void keep_origin();
  /// Steps begin: a folder that is removed from here on is made again at the next save.
  void begin();

  /// Tells of something that happened; the main process writes it.
  void note(int64_t step, RunEvent event, const std::string& text,
            const nlohmann::json& more = nlohmann::json::object());

  /// Whether train.save_minutes have passed, as the main process counts them.
  bool save_is_due(int64_t step) const;
  /// A failure is a warning unless it was the last chance. A checkpoint that is made in `passing`, because of
  /// train.save_minutes between those of train.save_steps, is replaced by the next one. The main process is
  /// asked for its `state`.
  void save(int64_t step, const std::function<RunState()>& state, bool last, bool passing);
  int64_t saved() const { return saved_; }  // the last step that was

  /// Keeps what the evaluation of a step found in metadata() and, where the step was saved, in its
  /// checkpoint.
  void keep_evaluation(int64_t step, double loss);
  int64_t evaluated() const { return evaluated_; }  // the last step that was
  /// Evaluations since the best one, and whether those are train.patience or more.
  int64_t worse() const { return worse_; }
  bool patience_is_over() const { return recipe_.train.patience > 0 && worse_ >= recipe_.train.patience; }
  int64_t best_step() const { return metadata_.at("best").at("step").get<int64_t>(); }

  /// Whether there may be checkpoints to remove, once the weights of the newest are known to be good: a loss
  /// that was computed with them is, in the next step or on held-out data.
  bool removal_is_due() const { return removal_is_due_; }
  /// Removes checkpoints beyond train.keep_checkpoints.
  void remove_old();

 private:
  void write(int64_t step, const RunState& state, bool last);

  const RunFolder run_;
  Recipe& recipe_;
  Processes& processes_;
  RunEvents events_;
  nlohmann::json metadata_ = nlohmann::json::object();
  nlohmann::json origin_ = nlohmann::json::object();  // of the main process
  std::optional<RunFiles> files_;                     // of the main process, while it trains
  double best_loss_ = INFINITY;                       // on held-out data
  int64_t worse_ = 0, evaluated_ = 0, saved_ = 0;
  std::chrono::steady_clock::time_point save_tried_;
  bool removal_is_due_ = false;
  int64_t replaced_ = 0;  // the checkpoint that was made in passing before the newest; 0: none
};

/// Samples that the steps of a checkpoint had consumed. One that does not say: by the settings that the run
/// had, whose config.yaml is still theirs.
int64_t samples_consumed(const Checkpoint& checkpoint, const RunFolder& run, Processes& processes);

}  // namespace tightloop
