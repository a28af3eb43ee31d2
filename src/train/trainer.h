#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "dist/processes.h"
#include "train/engine/divergence.h"
#include "train/engine/feed.h"
#include "train/engine/loss_buffer.h"
#include "train/engine/step_engine.h"
#include "train/engine/task.h"
#include "train/optim/optimizer.h"
#include "train/report/metrics.h"
#include "train/report/progress.h"
#include "train/run/checkpoint.h"
#include "train/run/run_files.h"
#include "train/run/run_folder.h"
#include "train/settings/recipe.h"

namespace tightloop {

struct TrainResult {
  int64_t step = 0;  // the last one done
  bool interrupted = false, stopped_early = false;
  std::optional<double> held_out_loss;
  std::vector<double> losses;  // one for each logging interval
  double mean_loss = 0;        // by token, over all steps of this run
  double seconds = 0;
};

/// How a run begins.
struct TrainerOptions {
  /// The run goes on from here. Whether the recipe fits it is for check_resume() to say, before. Nothing: a
  /// new run, from fresh weights or those of train.init_from.
  std::optional<Checkpoint> resume_from{};
  Processes* processes = nullptr;  // those that train together; null: this one alone
};

/// One run, from its recipe to its last checkpoint.
///
///     Trainer trainer(recipe, RunFolder::create("runs/a", false));
///     trainer.run();
class Trainer {
 public:
  /// Prepares everything: device, task (tokenizer, data, model) and optimizer.
  Trainer(const Recipe& recipe, const RunFolder& run, const TrainerOptions& options = {});

  /// Trains until the last step, train.stop_at or Ctrl-C, and saves. Nothing that is not training can cost
  /// the run: steps are saved before they are evaluated, and an evaluation that fails is a warning, as is a
  /// save before the last.
  TrainResult run();

  /// Adds to what is measured on held-out data, by those who know more: how well a model translates, say. Of
  /// several processes the main one is asked.
  void also_evaluate(std::function<Task::Evaluation()> more) { more_evaluation_ = std::move(more); }

  Task& task() { return *task_; }
  Device& device() { return device_; }
  /// Of a run that trains one.
  LanguageModel& model() { return task_->language_model(); }
  const Tokenizer& tokenizer() const { return task_->tokenizer(); }
  const Recipe& recipe() const { return recipe_; }
  /// What checkpoints say about this run: stage, parent, adapters, ...
  const nlohmann::json& metadata() const { return metadata_; }
  const Syncs& syncs() const { return engine_->syncs(); }

 private:
  friend class StepTimer;  // src/bench: steps by the clock instead of run()

  /// Takes step, place in the data and what was found so far from a checkpoint; weights are the optimizer's.
  void go_on_from(const Checkpoint& checkpoint);
  void announce() const;
  /// Fills in train.steps where train.epochs counts, and what follows from it.
  void plan_steps();
  /// Samples that all processes take in a step.
  int64_t step_samples() const;
  /// Starts loading after the last step done; micro-batches up to step `last`.
  std::unique_ptr<Feed> open_feed(int64_t last);
  std::optional<Staged> stage_next(int64_t last);
  void step(int64_t step, Feed& feed);
  /// Asks for the sums of steps since the last time, and handles those that are there; with `all`, every one.
  void extract(bool all);
  void handle(const StepSums& sums);
  void look_after_memory(int64_t step);
  bool stop_wanted(int64_t step);
  /// Whether train.save_minutes have passed, as the main process counts them.
  bool save_is_due(int64_t step);
  bool evaluates_at(int64_t step) const;
  /// Says so where there will be no evaluation.
  void check_held_out();
  /// What a run does after an evaluation.
  enum class Next { kGoOn, kStopEarly, kInterrupted };
  /// One process measures, all do what it says.
  Next evaluate(int64_t step, TrainResult& result);
  /// The held-out loss, logged; nothing where it could not be had.
  std::optional<double> measure(int64_t step);
  /// Keeps what the evaluation of a step found in `metadata_` and, where the step was saved, in its
  /// checkpoint.
  void remember(int64_t step, double loss);
  /// A failure to save is a warning unless it was the last chance. A checkpoint that is made in `passing`,
  /// because of train.save_minutes between those of train.save_steps, is replaced by the next one.
  void save(int64_t step, bool last, bool passing = false);
  /// Removes checkpoints beyond train.keep_checkpoints. Not before the weights of the newest are known to be
  /// good: a loss that was computed with them is, in the next step or on held-out data.
  void remove_old();

  Recipe recipe_;
  const bool chooses_lr_;  // by the size of the model
  RunFolder run_;
  Processes& processes_;
  Device& device_;
  nlohmann::json metadata_ = nlohmann::json::object();
  nlohmann::json origin_ = nlohmann::json::object();  // see origin_of(), of the main process
  std::unique_ptr<Task> task_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<LossBuffer> buffer_;
  std::unique_ptr<StepEngine> engine_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Metrics> metrics_;        // of the main process
  int64_t done_ = 0;                        // steps behind us
  int64_t consumed_ = 0;                    // samples that all processes have had in them
  int64_t staged_ = 0;                      // micro-batches staged, counted from the start of the run
  StepStart start_;                         // of the step under way
  MemoryStats memory_;                      // as read last
  double host_seconds_ = 0;                 // that starting steps took
  std::vector<StepSums>* taken_ = nullptr;  // where sums go while steps are timed
  double flops_ = 0;                        // of one token, from shapes, as the main process counts them
  std::optional<double> counted_flops_;     // of one token, as the operators of this process were counted
  std::unique_ptr<DivergenceGuard> guard_;
  std::optional<RunFiles> files_;  // of the main process, while it trains
  bool can_evaluate_ = false;
  double best_loss_ = INFINITY;  // on held-out data
  int64_t worse_ = 0;            // evaluations since
  int64_t evaluated_ = 0;        // the last step that was
  int64_t saved_ = 0;            // the last step that was
  std::chrono::steady_clock::time_point save_tried_;
  bool removal_due_ = false;  // of checkpoints before that
  int64_t replaced_ = 0;      // the one that was made in passing before it; 0: none
  std::function<Task::Evaluation()> more_evaluation_;
};

}  // namespace tightloop
