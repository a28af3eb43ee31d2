#pragma once

/// A model family of one's own: what it is made of, and the line that adds it.
/// Component: model.

#include "model/family.h"
#include "model/language_model.h"
#include "model/parts/attention.h"
