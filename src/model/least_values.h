#pragma once

#include "model/model_config.h"

namespace tightloop {

/// As many values as a model's weights have at the least: no sizes, however wrong, are too much for a double.
double least_values(const ModelConfig& config);

}  // namespace tightloop
