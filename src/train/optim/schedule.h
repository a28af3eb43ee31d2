#pragma once

#include <cstdint>

#include "train/train_config.h"

namespace tightloop {

/// What the schedule says about one step.
struct Rates {
  double lr_scale = 1;     // of every group's learning rate
  double decay_scale = 1;  // of Muon's weight decay
  double momentum = 0.95;  // Muon's
};

/// Steps count from 1. `width` is the model's, which only "noam" asks for.
Rates rates_at(const TrainConfig& config, int64_t step, int64_t width);

}  // namespace tightloop
