#pragma once

#include <string>

#include "cli/verbs.h"
#include "train/recipe.h"

namespace tightloop::cli {

/// The recipe in a file, with the command line's settings on top.
inline Recipe read_recipe(const std::string& file, const Settings& settings) {
  Recipe recipe;
  Config config = recipe.bind();
  config.load(file);
  config.apply(settings);
  return recipe;
}

}  // namespace tightloop::cli
