#pragma once

/// fp32 masters under a model in any dtype: AdamW or Muon, learning rates by schedule.
/// Component: train.

#include "train/optim/optimizer.h"
#include "train/optim/schedule.h"
