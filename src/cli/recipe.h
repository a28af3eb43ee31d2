#pragma once

#include <string>

#include "cli/verbs.h"
#include "train/recipe.h"

namespace tightloop::cli {

/// The recipe in a file, with the command line's settings on top. Where it starts from another model
/// (train.init_from), that one's sizes and tokenizer lie underneath.
Recipe read_recipe(const std::string& file, const Settings& settings);

}  // namespace tightloop::cli
