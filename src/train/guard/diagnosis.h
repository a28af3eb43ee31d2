#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/choice.h"
#include "dist/processes.h"
#include "train/engine/loss_buffer.h"
#include "train/engine/step_staging.h"
#include "train/engine/task.h"
#include "train/optim/optimizer.h"
#include "train/train_config.h"

namespace tightloop {

/// Why a step made no update, as far as another pass over its micro-batches shows.
enum class SkipCause { kLossMask, kWeight, kActivation, kLoss, kLossScale, kGradient, kUnknown };
template <>
inline constexpr auto kChoices<SkipCause> = std::to_array<Choice<SkipCause>>({
    {SkipCause::kLossMask, "loss_mask", "no token was to be learned"},
    {SkipCause::kWeight, "weight", "a weight is not finite"},
    {SkipCause::kActivation, "activation", "the first value that is not finite is in the forward pass"},
    {SkipCause::kLoss, "loss", "logits are finite, their loss is not"},
    {SkipCause::kLossScale, "loss_scale", "fp16 gradients overflow at this loss scale and not at 1"},
    {SkipCause::kGradient, "gradient", "the first value that is not finite is in the backward pass"},
    {SkipCause::kUnknown, "unknown", "all is finite the second time"},
});

struct Diagnosis {
  SkipCause cause = SkipCause::kUnknown;
  std::string text;               // a few sentences for people
  std::string layer, tensor, op;  // which is the first that is not finite: "3", "blocks.3.down", "mm"
  std::vector<std::string>
      rows;  // where the micro-batch's rows come from; those to blame where that is known

  /// For events.jsonl.
  nlohmann::json fields() const;
};

/// What a diagnosis looks at: the run as it is now.
struct DiagnosedRun {
  const TrainConfig& train;
  Task& task;
  Optimizer& optimizer;
  StepStaging& staging;
  at::Device device;
};

/// One more pass over this process's micro-batches of a step, eagerly and with the weights as they are now.
/// Changes nothing. Of a training whose state is sharded, after Optimizer::refresh_weights(). Slow, and full
/// of syncs: for when something went wrong.
Diagnosis diagnose(const DiagnosedRun& run, const StepSums& sums);

struct WorstRow {
  double loss = 0;  // its mean
  std::string origin;
};
/// The rows with the largest mean losses among this process's of a step, in a pass as above.
std::vector<WorstRow> worst_rows(const DiagnosedRun& run, int64_t step);
/// The largest of all processes', as texts. All of them call it, each with its own.
std::vector<std::string> worst_of_all(const std::vector<WorstRow>& own, Processes& processes);

}  // namespace tightloop
