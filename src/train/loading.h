#pragma once

#include "data/loader.h"
#include "tokenizer/tokenizer.h"
#include "train/recipe.h"

namespace tightloop {

/// How a recipe's rows are loaded, from the first micro-batch on.
inline LoaderOptions loading_of(const Recipe& recipe, const Tokenizer& tokenizer) {
  LoaderOptions options = loader_options(recipe.data);
  options.rows = recipe.train.micro_batch;
  options.pad_id = tokenizer.end_of_text();
  options.seed = recipe.train.seed;
  return options;
}

}  // namespace tightloop
