#pragma once

/// Typed configuration: structs that describe their fields, read from YAML and the command line.
/// Component: core.

#include "core/config.h"
