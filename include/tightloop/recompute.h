#pragma once

/// Activation checkpointing: blocks that keep their inputs alone.
/// Component: model.

#include "model/parts/recompute.h"
