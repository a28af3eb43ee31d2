#pragma once

#include <cstdint>
#include <vector>

#include "train/optim/schedule.h"
#include "train/train_config.h"

namespace tightloop {

/// What the host knows about a micro-batch and its step, and the device must: fp64 numbers that travel with
/// the micro-batch, so that a captured step reads them from the same place every time.
///
/// By train.loss_norm, a step's gradient is that of
///   global: (sum of all losses + sum of each micro-batch's balance loss times its tokens) / all tokens
///   micro:  sum over micro-batches of (mean loss + balance loss) / train.accumulate
/// where tokens are the supervised ones.
struct StepNumbers {
  enum {
    kLossWeight,     // of the loss sum in what is differentiated
    kBalanceWeight,  // of the experts' balance loss there
    kUnit,           // of a token in what the gradient is divided by
    kTokens,         // supervised ones
    kBytes,          // of text in those; 0: not known
    kLrScale,        // see Rates
    kDecayScale,
    kMomentum,
    kSize
  };
};

/// `supervised` tokens with so many `bytes`. `unit` weighs every token, and the division at the end takes it
/// out again.
std::vector<double> step_numbers(const TrainConfig& config, const Rates& rates, int64_t supervised,
                                 int64_t bytes = 0, double unit = 1);

}  // namespace tightloop
