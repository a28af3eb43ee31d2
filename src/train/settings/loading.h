#pragma once

#include <memory>
#include <vector>

#include "data/batch/loader.h"
#include "data/batch/pairs.h"
#include "data/mixture.h"
#include "tokenizer/tokenizer.h"
#include "train/settings/recipe.h"

namespace tightloop {

constexpr const char* kNothingHeldOut =
    "no document is held out. Name some with data.val, or hold out a larger share with data.holdout.";

/// How a recipe's rows are loaded, from the first micro-batch on.
inline LoaderOptions loading_of(const Recipe& recipe, int32_t pad_id) {
  LoaderOptions options = loader_options(recipe.data);
  options.rows = recipe.train.micro_batch;
  options.pad_id = pad_id;
  options.seed = recipe.train.seed;
  return options;
}
inline LoaderOptions loading_of(const Recipe& recipe, const Tokenizer& tokenizer) {
  LoaderOptions options = loading_of(recipe, tokenizer.end_of_text());
  options.token_bytes = std::make_shared<const std::vector<int32_t>>(tokenizer.token_bytes());
  return options;
}

/// Whether that is pairs of sentences.
inline bool loads_pairs(const Recipe& recipe) {
  return recipe.model.translates() || loads_pairs(recipe.data);
}
/// The same for pairs of sentences.
inline PairOptions pair_loading_of(const Recipe& recipe) {
  PairOptions options;
  options.batch_tokens = recipe.data.batch_tokens;
  options.max_length = recipe.data.seq_len;
  options.bucket = recipe.data.bucket;
  options.seed = recipe.train.seed;
  options.threads = static_cast<int>(recipe.data.num_workers);
  return options;
}

}  // namespace tightloop
