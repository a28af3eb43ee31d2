#pragma once

#include <memory>

#include "tokenizer/bpe_train.h"
#include "tokenizer/tokenizer.h"
#include "train/recipe.h"
#include "train/run_folder.h"

namespace tightloop {

/// Trains a byte-level BPE on the plain texts of the data, with progress on the terminal.
std::unique_ptr<Tokenizer> train_tokenizer(BpeTrainOptions options, const DataConfig& data,
                                           const TasksConfig& tasks);

/// The tokenizer that the recipe names, or one trained on its data.
std::unique_ptr<Tokenizer> make_tokenizer(const Recipe& recipe);

/// The run's own tokenizer where it has one already, else the one that the recipe names, else one trained on
/// the recipe's data. It is saved in the run's folder, so that the run needs nothing from outside later.
std::unique_ptr<Tokenizer> prepare_tokenizer(const Recipe& recipe, const RunFolder& run);

}  // namespace tightloop
