#pragma once

/// What trains: the CPU, or a GPU once the CUDA plug-in is loaded.
/// Component: core.

#include "core/device.h"
#include "core/plugin.h"
