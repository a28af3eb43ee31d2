#pragma once

/// Mixed precision: Autocast and GradScaler, which never make the host wait.
/// Component: train.

#include "train/engine/autocast.h"
#include "train/engine/grad_scaler.h"
