#pragma once

#include <cstdint>
#include <string>

#include "core/config.h"
#include "train/train_config.h"

namespace tightloop {

/// Two settings say how long a run is, train.steps and train.epochs, two how long its warm-up is,
/// train.warmup_steps and train.warmup_ratio, and two how large a step, train.accumulate and
/// train.step_tokens. What the command line gave to `config` counts, and the other of
/// the two is set to 0. A usage error where it gave both.
void prefer_command_line(TrainConfig& train, const Config& config);

/// The last step of a run over `epochs` of the data, in units of samples (rows, or batches of pairs), of
/// which `done` steps have had `consumed`.
int64_t steps_of_epochs(double epochs, uint64_t epoch_samples, int64_t step_samples, int64_t done = 0,
                        int64_t consumed = 0);

/// Fills in train.accumulate where train.step_tokens counts, for rows of `row_tokens` and so many processes.
/// A usage error where a step is no whole number of micro-batches.
void resolve_accumulate(TrainConfig& train, int64_t row_tokens, int64_t world);

constexpr int64_t kFewUpdates = 10;
/// Where train.epochs come to so few updates that they teach little: a sentence that says so, else an empty
/// one. `row_tokens` 0: samples are batches of pairs.
std::string few_updates_note(const TrainConfig& train, uint64_t epoch_samples, int64_t step_samples,
                             int64_t row_tokens);

/// Fills in what follows from train.steps: the warm-up of train.warmup_ratio, and the intervals that are -1.
void resolve_intervals(TrainConfig& train);

}  // namespace tightloop
