#pragma once

#include <cstdint>
#include <functional>

#include "train/loss.h"
#include "train/optimizer.h"
#include "train/train_config.h"

namespace tightloop {

struct MicroBatch {
  DeviceBatch batch;
  int64_t supervised = 0;  // tokens to be learned
};

/// Forward and backward of one step's micro-batches (train.accumulate of them); their gradients gather in the
/// optimizer. `next` gives them in order, `seen` is told the loss of each that had something to learn: the
/// others are passed over. Gives what the gathered gradient must be divided by; 0: there is none.
///
/// By train.loss_norm, the gradient is that of
///   global: sum of all losses / supervised tokens of the step + mean of the micro-batches' balance losses
///   micro:  sum over micro-batches of (mean loss + balance loss) / train.accumulate
double accumulate_step(LanguageModel& model, Optimizer& optimizer, const TrainConfig& config,
                       const std::function<MicroBatch()>& next,
                       const std::function<void(const MicroBatch&, const BatchLoss&)>& seen);

}  // namespace tightloop
