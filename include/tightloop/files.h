#pragma once

/// Files that appear whole or not at all, and what else there is to do with files.
/// Component: core.

#include "core/files.h"
