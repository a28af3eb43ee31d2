#pragma once

/// Losses that stay on the device until somebody looks.
/// Component: train.

#include "core/syncs.h"
#include "train/engine/loss_buffer.h"
#include "train/engine/loss_compute.h"
