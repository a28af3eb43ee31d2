#pragma once

#include <string>
#include <vector>

#include "train/settings/recipe.h"

namespace tightloop {

/// Makes data.source, also of the entries of data.mixture, one that can be read: `auto` becomes what the
/// files look like, and so does a generated source where the command line names files. What a recipe set for
/// its generated source alone goes with it. `config` knows what the command line
/// says. Returns sentences about all that. A data error where the recipe
/// wants conversations and the files hold none.
std::vector<std::string> resolve_source(Recipe& recipe, const Config& config);

}  // namespace tightloop
