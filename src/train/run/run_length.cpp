#include "train/run/run_length.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "core/error.h"

namespace tightloop {

namespace {

/// Whether the command line gave `key`, and not its 0, which stands for nothing.
bool gave(const Config& config, const char* key, double value) { return config.commanded(key) && value > 0; }

}  // namespace

void prefer_command_line(TrainConfig& train, const Config& config) {
  const bool steps = gave(config, "train.steps", static_cast<double>(train.steps)),
             epochs = gave(config, "train.epochs", train.epochs);
  if (steps && epochs)
    throw usage_error("--train.steps and --train.epochs both say how long to train: give one of the two.");
  if (epochs) train.steps = 0;
  if (steps) train.epochs = 0;
  // Of a warm-up, 0 says that there is none.
  const bool warmup = config.commanded("train.warmup_steps"), ratio = config.commanded("train.warmup_ratio");
  if (warmup && ratio && train.warmup_steps > 0 && train.warmup_ratio > 0)
    throw usage_error(
        "--train.warmup_steps and --train.warmup_ratio both say how long the warm-up is: give one of the "
        "two.");
  if (ratio && !warmup) train.warmup_steps = 0;
  if (warmup && !ratio) train.warmup_ratio = 0;
  if (!config.commanded("train.accumulate")) return;
  if (gave(config, "train.step_tokens", static_cast<double>(train.step_tokens)))
    throw usage_error(
        "--train.step_tokens and --train.accumulate both say how large a step is: give one of the two.");
  train.step_tokens = 0;
}

void resolve_accumulate(TrainConfig& train, int64_t row_tokens, int64_t world) {
  if (train.step_tokens == 0 || train.micro_batch == 0) return;
  const int64_t pass = train.micro_batch * row_tokens * world;
  if (train.step_tokens % pass != 0)
    throw usage_error(
        "train.step_tokens is {}, which is no multiple of {} rows of {} tokens x {} process{} = {}. Change "
        "train.micro_batch (data.seq_len, train.step_tokens), or give train.accumulate instead.",
        train.step_tokens, train.micro_batch, row_tokens, world, world == 1 ? "" : "es", pass);
  train.accumulate = train.step_tokens / pass;
}

int64_t steps_of_epochs(double epochs, uint64_t epoch_samples, int64_t step_samples, int64_t done,
                        int64_t consumed) {
  constexpr double kRounding = 1e-9;  // 0.1 epochs of 10 rows are one row
  const double wanted = epochs * static_cast<double>(epoch_samples);
  const auto samples = static_cast<int64_t>(std::ceil(wanted * (1 - kRounding)));
  const int64_t left = std::max<int64_t>(0, samples - consumed);
  return std::max<int64_t>(1, done + (left + step_samples - 1) / step_samples);
}

std::string few_updates_note(const TrainConfig& train, uint64_t epoch_samples, int64_t step_samples,
                             int64_t row_tokens) {
  if (train.epochs == 0 || train.steps >= kFewUpdates) return {};  // train.steps is what was asked for
  const bool one = epoch_samples == 1;
  return fmt::format(
      "The data fill {} and a step takes {}: {} in all, which teach little. Smaller {} or more train.epochs "
      "give more.",
      row_tokens > 0 ? fmt::format("{} of {} tokens", counted(epoch_samples, "row"), row_tokens)
                     : fmt::format("{} batch{} of pairs", epoch_samples, one ? "" : "es"),
      step_samples, counted(train.steps, "update"),
      row_tokens == 0         ? "data.batch_tokens"
      : train.step_tokens > 0 ? "train.step_tokens (and train.micro_batch)"
                              : "train.micro_batch or train.accumulate");
}

void resolve_intervals(TrainConfig& train) {
  if (train.warmup_steps == 0 && train.warmup_ratio > 0)
    train.warmup_steps =
        std::max<int64_t>(1, std::llround(train.warmup_ratio * static_cast<double>(train.steps)));
  if (train.eval_steps < 0) {
    // An evaluation costs a third of its batches in steps: together no more than a ninth of the training.
    constexpr int64_t kAllHeldOut = 32;  // batches, where the recipe does not say
    const int64_t batches = train.eval_batches > 0 ? train.eval_batches : kAllHeldOut;
    train.eval_steps = std::max((train.steps + 9) / 10, 3 * batches);
  }
}

}  // namespace tightloop
