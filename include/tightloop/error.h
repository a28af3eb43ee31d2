#pragma once

/// Errors that are sentences, each with an exit code.
/// Component: core.

#include "core/error.h"
