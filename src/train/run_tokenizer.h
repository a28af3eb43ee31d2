#pragma once

#include <memory>

#include "tokenizer/tokenizer.h"
#include "train/recipe.h"
#include "train/run_folder.h"

namespace tightloop {

/// The tokenizer that the recipe names, or one trained on its data.
std::unique_ptr<Tokenizer> make_tokenizer(const Recipe& recipe);

/// The run's own tokenizer where it has one already, else the one that the recipe names, else one trained on
/// the recipe's data. It is saved in the run's folder, so that the run needs nothing from outside later.
std::unique_ptr<Tokenizer> prepare_tokenizer(const Recipe& recipe, const RunFolder& run);

}  // namespace tightloop
