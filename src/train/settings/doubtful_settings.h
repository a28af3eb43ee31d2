#pragma once

#include <string>
#include <vector>

#include "train/settings/recipe.h"

namespace tightloop {

/// Sentences about settings that are allowed and hardly meant: a rate of 0, a warm-up without an end.
std::vector<std::string> doubtful_settings(const Recipe& recipe);

}  // namespace tightloop
