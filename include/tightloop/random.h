#pragma once

/// Random numbers and shuffles that are functions: the same for the same seed and place, whoever asks.
/// Component: core.

#include "core/random.h"
