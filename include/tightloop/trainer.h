#pragma once

/// A run from its recipe to its last checkpoint, and resuming it to the same bits.
/// Component: train.

#include "train/run/resume_check.h"
#include "train/run/run_folder.h"
#include "train/run/saved_model.h"
#include "train/settings/recipe.h"
#include "train/trainer.h"
