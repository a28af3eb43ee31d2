#pragma once

#include "train/settings/recipe.h"

namespace tightloop::testing {

/// The smallest training that learns something, on the CPU in fp32.
inline Recipe small_recipe() {
  Recipe recipe;
  recipe.data.source = DataSource::kTasks, recipe.data.rows = RowKind::kPad, recipe.data.seq_len = 24,
  recipe.data.loss_after = " =";
  recipe.tasks.questions = 400, recipe.tasks.held_out = 20;
  recipe.tokenizer.vocab_size = 257;
  recipe.model.layers = 1, recipe.model.width = 32, recipe.model.heads = 2;
  recipe.train.device = "cpu", recipe.train.precision = Precision::kFp32, recipe.train.threads = 1;
  recipe.train.steps = 40, recipe.train.micro_batch = 8, recipe.train.lr = 1e-2;
  recipe.train.logging_steps = 4;
  return recipe;
}

}  // namespace tightloop::testing
