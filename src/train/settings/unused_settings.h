#pragma once

#include <string>
#include <vector>

#include "train/settings/recipe.h"

namespace tightloop {

/// A sentence for each setting of a new run that is not at its default and has no effect, because the family,
/// the optimizer or the schedule does not know it. Where the run would be another than the one that was asked
/// for, it is a usage error.
std::vector<std::string> unused_settings(const Recipe& recipe);

}  // namespace tightloop
