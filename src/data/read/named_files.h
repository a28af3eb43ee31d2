#pragma once

#include <string>
#include <vector>

#include "data/data_config.h"

namespace tightloop {

/// What seems wrong with the files that a configuration (or its mixture) names, a sentence each: one that is
/// empty, one that is named twice, one that is both learned and evaluated on. Nothing of it stops a run.
std::vector<std::string> doubts_about_files(const DataConfig& config);

}  // namespace tightloop
