#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "train/train_config.h"

namespace tightloop {

/// What a step takes of the data, in all processes together. Checkpoints have it as `batch`.
struct StepSize {
  int64_t samples = 0;    // rows, or batches of pairs; 0: not known
  int64_t processes = 0;  // that share them

  nlohmann::json to_json() const { return {{"samples", samples}, {"processes", processes}}; }
  /// As `metadata` of a checkpoint says; old ones do not.
  static StepSize of(const nlohmann::json& metadata);
};

/// Of a run that goes on with another number of processes: where train.step_tokens says how large a step is,
/// it stays so large, by a smaller train.micro_batch where the old one does not divide a process's rows.
/// Gives a sentence where it does that, else an empty one. A usage error where the processes cannot share a
/// step's rows evenly.
std::string fit_micro_batch(TrainConfig& train, int64_t row_tokens, int64_t world);

/// Where a run goes on with steps of another size: a sentence that says so and how to keep the size, else an
/// empty one. `row_tokens` 0: samples are batches of pairs.
std::string step_size_note(const StepSize& was, const StepSize& is, int64_t row_tokens);

}  // namespace tightloop
