#pragma once

#include <string>

#include "cli/verbs.h"
#include "train/settings/recipe.h"

namespace tightloop::cli {

/// Whether a user names a model that is there: a run (or its name in runs/), a checkpoint (also RUN@best), a
/// Hugging Face folder.
bool names_model(const std::string& what);
/// The recipe that such a model was trained by (of a Hugging Face folder: its sizes), or else that of a file;
/// with the settings on top and its model resolved.
Recipe recipe_or_model(const std::string& what, const Settings& settings);

}  // namespace tightloop::cli
