#pragma once

/// Language models by family, with plain parameters.
/// Component: model.

#include "model/language_model.h"
#include "model/model_config.h"
#include "model/parts/parameters.h"
