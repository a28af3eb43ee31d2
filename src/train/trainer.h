#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/syncs.h"
#include "dist/processes.h"
#include "train/engine/evaluator.h"
#include "train/engine/loss_buffer.h"
#include "train/engine/task.h"
#include "train/optim/optimizer.h"
#include "train/report/device_use.h"
#include "train/report/metrics.h"
#include "train/report/progress.h"
#include "train/report/sample_log.h"
#include "train/run/checkpoint.h"
#include "train/run/run_folder.h"
#include "train/run/run_history.h"
#include "train/settings/recipe.h"

namespace tightloop {

class Feed;
class RunShare;
class SharedCheckpoint;
class StepEngine;
class StepGuard;
class StepStaging;
struct GraphCounts;

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
  RunShare* share = nullptr;       // their ways to the run's folder; null: all of them see it
};

/// One run, from its recipe to its last checkpoint.
///
///     Trainer trainer(recipe, RunFolder::create("runs/a", false));
///     trainer.run();
class Trainer {
 public:
  /// Prepares everything: device, task (tokenizer, data, model) and optimizer.
  Trainer(const Recipe& recipe, const RunFolder& run, const TrainerOptions& options = {});
  ~Trainer();

  /// Trains until the last step, train.stop_at or Ctrl-C, and saves. Nothing that is not training can cost
  /// the run: steps are saved before they are evaluated, and an evaluation that fails is a warning, as is a
  /// save before the last.
  TrainResult run();

  /// Adds to what is measured on held-out data, by those who know more: how well a model translates, say. All
  /// processes say so, or none.
  void also_evaluate(SplitMeasure split) { evaluator_->also(std::move(split)); }
  /// The same of what is not split: of several processes the main one is asked.
  void also_evaluate(std::function<Task::Evaluation()> more) { evaluator_->also(std::move(more)); }

  /// Measures the model by the tasks of eval.suite, every eval.suite_steps and at the end: into the metrics
  /// and the log. A failure is a warning. Of several processes the main one is asked.
  void also_measure(std::function<Task::Evaluation()> suite) { evaluator_->also_suite(std::move(suite)); }

  /// What is asked of the model at every evaluation, by those who can: it goes to samples.jsonl and in brief
  /// to the log. A failure is a warning. Of several processes the main one is asked.
  void also_sample(std::function<std::vector<TrainingSample>()> sampler) { sampler_ = std::move(sampler); }

  /// Some steps instead of run(), to be timed: logged to metrics.jsonl, neither evaluated nor saved. What
  /// they came to is added to `sums`.
  void take_steps(int64_t steps, std::vector<StepSums>& sums);
  /// Seconds so far that the host took to start steps, and that copies to the device took.
  double host_seconds() const { return host_seconds_; }
  double copy_seconds() const;
  const GraphCounts& graphs() const;

  Task& task() { return *task_; }
  Device& device() { return device_; }
  /// Of a run that trains one.
  LanguageModel& model() { return task_->language_model(); }
  const Tokenizer& tokenizer() const { return task_->tokenizer(); }
  const Recipe& recipe() const { return recipe_; }
  /// What checkpoints say about this run: stage, parent, adapters, ...
  const nlohmann::json& metadata() const { return history_.metadata(); }
  const Syncs& syncs() const;

 private:
  void announce() const;
  /// Fills in train.steps where train.epochs counts, and what follows from it.
  void plan_steps();
  /// Samples that all processes take in a step.
  int64_t step_samples() const;
  /// Starts loading after the last step done; micro-batches up to step `last`.
  void open_feed(int64_t last);
  void step(int64_t step);
  /// Asks for the sums of steps since the last time, and handles those that are there; with `all`, every one.
  void extract(bool all);
  void handle(const StepSums& sums);
  /// Back to the last checkpoint; the data goes on after the step whose loss was a spike. False: there is
  /// none, or it cannot be read or told, and the run goes on as it is.
  bool roll_back(int64_t spike, int64_t last);
  /// In all processes the same one, or in none.
  std::optional<Checkpoint> newest_on_disk();
  std::unique_ptr<Progress> make_progress() const;
  /// What signals to any of the processes ask for, as all of them agree after this step.
  struct Asked {
    bool stop = false, save = false;
  };
  Asked asked_at(int64_t step);
  bool evaluates_at(int64_t step) const;
  /// Whether the run was stopped between a save and its evaluation, which is to be made up for.
  bool owes_evaluation() const;
  bool saves_at(int64_t step) const;  // whatever the time
  bool measures_suite_at(int64_t step) const;
  /// run() without the account of it in events.jsonl.
  TrainResult train();
  void note_start();
  /// What a run does after an evaluation.
  enum class Next { kGoOn, kStopEarly, kInterrupted };
  /// All processes measure, and do what the main one then says.
  Next evaluate(int64_t step, TrainResult& result);
  /// Numbers of a step, into the metrics and the log; `over`: what they are of, for the log.
  void log_values(int64_t step, const Task::Evaluation& values, const std::string& over = "");
  /// Logs what the model makes of a suite of tasks.
  void measure_suite(int64_t step);
  /// Keeps what the model makes of prompts.
  void sample(int64_t step);
  /// Once the losses of the step and its peers are known to be good. See RunHistory::save.
  void save(int64_t step, bool last, bool passing = false);
  /// The same where the state is sharded, each process writing what it has. False: it did not work, and the
  /// main process must collect it.
  bool save_together(int64_t step, bool last, bool passing);
  /// What a checkpoint holds besides tensors.
  RunSnapshot snapshot() const;
  /// The weights to begin with are the main process's.
  void share_weights();

  Recipe recipe_;
  const bool chooses_lr_;  // by the size of the model
  RunFolder run_;
  Processes& processes_;
  RunShare* share_;
  Device& device_;
  std::shared_ptr<SharedCheckpoint> shared_files_;  // where the state is sharded, once it was saved
  RunHistory history_;
  DeviceUse use_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<StepStaging> staging_;
  std::unique_ptr<Feed> feed_;
  std::unique_ptr<LossBuffer> buffer_;
  std::unique_ptr<StepEngine> engine_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Metrics> metrics_;  // of the main process
  std::function<std::vector<TrainingSample>()> sampler_;
  std::unique_ptr<SampleLog> samples_;      // of the main process
  int64_t done_ = 0;                        // steps behind us
  int64_t consumed_ = 0;                    // samples that all processes have had in them
  StepStart start_;                         // of the step under way
  double host_seconds_ = 0;                 // that starting steps took
  std::vector<StepSums>* taken_ = nullptr;  // where sums go in take_steps()
  std::unique_ptr<StepGuard> guard_;
};

}  // namespace tightloop
