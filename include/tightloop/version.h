#pragma once

/// The version of this library.
/// Component: core.

#include "core/version.h"
