#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/processes.h"
#include "model/files/safetensors.h"
#include "train/guard/diagnosis.h"
#include "train/guard/divergence.h"
#include "train/guard/spike_filter.h"
#include "train/run/run_folder.h"
#include "train/run/run_history.h"

namespace tightloop {

class StragglerWatch;

/// Judges the steps of a run as their sums arrive, late: whether the run has diverged (DivergenceGuard),
/// whether a loss is a spike (train.on_spike), why an update was skipped (diagnose()), and which process the
/// others wait for (StragglerWatch). Incidents are
/// warnings and lines of events.jsonl; of those that follow each other, and of more than a few in a run, the
/// later ones are not looked into.
class StepGuard {
 public:
  static constexpr int kMostDiagnoses = 5, kMostSpikes = 20;

  StepGuard(const TrainConfig& train, const ModelConfig& model, bool random_data, const RunFolder& run,
            RunHistory& history, Processes& processes, at::Device device);
  ~StepGuard();

  /// What is looked into. Until it is given nothing is.
  void watch(const DiagnosedRun& run) { run_.emplace(run); }

  /// The next step, `done` being the last one started. Error(kFailure) where the run has diverged.
  void step(const StepSums& sums, int64_t done);
  DivergenceGuard& divergence() { return *divergence_; }
  /// Whether nothing speaks against the weights that the last step computed with.
  bool healthy() const { return spike_ == 0 && divergence_->healthy(); }

  /// The filter for StepEngine, with train.on_spike skip; else null.
  DeviceSpikeFilter* device_spikes() { return device_spikes_.get(); }
  /// With train.on_spike rollback: the step of a spike since the last reset(), because of which the run is to
  /// go back; 0: none.
  int64_t wants_rollback() const { return spike_; }
  /// It cannot go back: the steps since the spike count after all.
  void forgive();
  /// Steps go on after a checkpoint: what was judged before is of no account.
  void reset(const Safetensors& optimizer);

  /// What checkpoints keep of it, beside the optimizer's.
  NamedTensors state() const;

 private:
  void judge_skip(const StepSums& sums, int64_t done);
  void judge_spike(const StepSums& sums, int64_t done);
  void report_spike(int64_t step, const SpikeFilter::Spike& spike, int64_t done);
  std::string way_back(int64_t step) const;
  std::string way_back_here(int64_t step) const;
  std::unique_ptr<DivergenceGuard> make_divergence() const;

  const TrainConfig& train_;
  const int64_t vocab_size_;
  const bool random_data_;
  const RunFolder folder_;
  RunHistory& history_;
  Processes& processes_;
  std::optional<DiagnosedRun> run_;
  std::unique_ptr<DivergenceGuard> divergence_;
  SpikeFilter spikes_;
  std::unique_ptr<DeviceSpikeFilter> device_spikes_;
  std::unique_ptr<StragglerWatch> stragglers_;  // where there are several processes
  int64_t spike_ = 0, last_spike_ = 0;
  std::vector<StepSums> held_back_;  // from the spike on: of steps that will not have been
  int64_t skipped_in_a_row_ = 0, searched_in_a_row_ = 0;  // for a loss scale: those are counted apart
  int diagnoses_ = 0, reported_spikes_ = 0;
};

}  // namespace tightloop
