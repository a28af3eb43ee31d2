#pragma once

/// Messages for people, written by a thread of their own.
/// Component: core.

#include "core/log.h"
