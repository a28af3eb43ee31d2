// Activation checkpointing in whole runs.
#include <ATen/ops/equal.h>

#include "support.h"
#include "train/run/checkpoint.h"
#include "train/run/saved_model.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop {
namespace {

using testing::TempFolder;

Recipe recipe_with(const std::string& checkpointing) {
  Recipe recipe = testing::small_recipe();
  recipe.model.layers = 3, recipe.model.dropout = 0.1, recipe.model.gradient_checkpointing = checkpointing;
  recipe.train.accumulate = 2, recipe.train.steps = 8;
  return recipe;
}

TEST(CheckpointedRun, LearnsTheSameToTheBitAndSaysWhatItUsed) {
  const TempFolder folder;
  for (const auto optimizer : {OptimizerKind::kAdamw, OptimizerKind::kMuon}) {
    std::vector<Safetensors> weights;
    for (const char* blocks : {"none", "2", "all"}) {
      const auto run = RunFolder::create(folder / (std::string(name_of(optimizer)) + blocks), false);
      auto recipe = recipe_with(blocks);
      recipe.train.optimizer = optimizer, recipe.train.embedding_lr = 0.002;
      Trainer(recipe, run).run();
      weights.push_back(load_checkpoint(run.checkpoints()).weights);
      EXPECT_EQ(SavedModel(run.root()).metadata().at("gradient_checkpointing"), blocks);
    }
    for (const auto& other : weights)
      for (const auto& [name, tensor] : weights[0].tensors)
        EXPECT_TRUE(at::equal(tensor, other.tensors.at(name))) << optimizer << ' ' << name;
  }
}

TEST(CheckpointedRun, AutoSettlesByTheMemoryThatThereIs) {
  const TempFolder folder;
  const auto used = [&](const char* name, double gib) {
    auto recipe = recipe_with("auto");
    recipe.train.memory_limit = gib, recipe.train.steps = 1;
    const auto run = RunFolder::create(folder / name, false);
    Trainer(recipe, run).run();
    return SavedModel(run.root()).metadata().at("gradient_checkpointing").get<std::string>();
  };
  EXPECT_EQ(used("plenty", 0), "none");
  EXPECT_NE(used("little", 0.003), "none");  // GiB: enough for some blocks that are recomputed
}

}  // namespace
}  // namespace tightloop
