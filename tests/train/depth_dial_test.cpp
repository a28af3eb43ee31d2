#include "train/settings/depth_dial.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "model/model_size.h"
#include "support.h"
#include "train/optim/schedule.h"
#include "train/run/run_length.h"

namespace tightloop {
namespace {

struct DialledRecipe {
  Recipe recipe;
  std::string said;
};

DialledRecipe dial(const std::string& yaml, const std::vector<std::string>& settings = {},
                   int64_t world = 1) {
  DialledRecipe out;
  Config config = out.recipe.bind();
  config.load_text(yaml, "test");
  config.apply(settings);
  prefer_command_line(out.recipe.train, config);
  EXPECT_TRUE(turns_depth_dial(out.recipe, config));
  out.said = resolve_depth(out.recipe, config, world);
  return out;
}

// Against the statements of nanochat's own script (tests/golden/make_nanochat.py).
TEST(DepthDial, FollowsNanochatsRules) {
  const auto golden =
      nlohmann::json::parse(read_file(testing::source_folder() / "tests/golden/nanochat.json"))["depths"];
  ASSERT_EQ(golden.size(), 6u);
  for (const auto& row : golden) {
    const auto depth = row["depth"].get<int64_t>();
    SCOPED_TRACE(depth);
    const auto number = [&](const char* key) { return row[key].get<double>(); };
    std::vector<std::string> settings{"--model.depth", std::to_string(depth)};
    if (number("ratio") != DepthRules::kDataRatio)
      settings.insert(settings.end(), {"--train.data_ratio", std::to_string(number("ratio"))});
    auto [recipe, said] = dial("model: {family: nanochat}", settings);
    EXPECT_NE(said.find(std::to_string(row["step_tokens"].get<int64_t>())), std::string::npos) << said;
    TrainConfig& train = recipe.train;
    recipe.model.resolve(recipe.tokenizer.vocab_size, recipe.data.seq_len);
    EXPECT_EQ(recipe.model.layers, row["layers"]);
    EXPECT_EQ(recipe.model.width, row["width"]);
    EXPECT_EQ(recipe.model.heads, row["heads"]);
    EXPECT_EQ(recipe.model.kv_heads, row["kv_heads"]);
    EXPECT_EQ(recipe.model.vocab_size, row["vocab_size"]);
    EXPECT_EQ(recipe.model.window_pattern, row["windows"]);
    EXPECT_EQ(model_size(recipe.model).total, row["parameters"]);
    EXPECT_EQ(recipe.data.seq_len, row["seq_len"]);
    EXPECT_EQ(train.step_tokens, row["step_tokens"]);
    EXPECT_EQ(train.steps, row["steps"]);
    EXPECT_EQ(train.warmup_steps, row["warmup_steps"]);
    EXPECT_EQ(train.clip, 0);
    EXPECT_EQ(train.optimizer, OptimizerKind::kMuon);
    EXPECT_DOUBLE_EQ(train.matrix_lr, number("matrix_lr"));
    EXPECT_DOUBLE_EQ(train.embedding_lr, number("embedding_lr"));
    EXPECT_DOUBLE_EQ(train.unembedding_lr, number("unembedding_lr"));
    EXPECT_DOUBLE_EQ(train.scalar_lr, number("scalar_lr"));
    EXPECT_DOUBLE_EQ(train.muon_weight_decay, number("weight_decay"));
    for (const auto& at : row["at"]) {
      const auto it = at[0].get<int64_t>();
      const Rates rates = rates_at(train, it + 1, recipe.model.width);
      EXPECT_NEAR(rates.lr_scale, at[1].get<double>(), 1e-12) << "step " << it;
      EXPECT_NEAR(rates.momentum, at[2].get<double>(), 1e-12) << "step " << it;
      EXPECT_NEAR(rates.decay_scale * train.muon_weight_decay, at[3].get<double>(), 1e-12) << "step " << it;
    }
  }
}

TEST(DepthDial, WhatIsGivenStays) {
  const std::string yaml =
      "model: {family: nanochat, depth: 4}\ntrain: {matrix_lr: 0.5, clip: 1, warmup_ratio: 0.1}\n";
  const auto given =
      dial(yaml, {"--train.steps", "7", "--tokenizer.vocab_size", "1000", "--data.seq_len", "64"});
  EXPECT_EQ(given.recipe.train.steps, 7);
  EXPECT_EQ(given.recipe.train.matrix_lr, 0.5);
  EXPECT_EQ(given.recipe.train.clip, 1);
  EXPECT_EQ(given.recipe.train.warmup_steps, 0);
  EXPECT_EQ(given.recipe.tokenizer.vocab_size, 1000);
  EXPECT_EQ(given.recipe.data.seq_len, 64);
  EXPECT_NE(given.recipe.train.embedding_lr, TrainConfig().embedding_lr);
  // Rates and steps follow a batch of one's own, of all processes.
  const auto batch = dial(yaml, {"--train.micro_batch", "16", "--train.accumulate", "2"}, /*world=*/8);
  EXPECT_EQ(batch.recipe.train.step_tokens, 0);
  EXPECT_EQ(batch.recipe.train.steps, 138412608 / (16 * 2 * 8 * 2048));
  EXPECT_DOUBLE_EQ(batch.recipe.train.scalar_lr, 0.5);
  // Sizes of one's own stay too, and the dial does not turn them back.
  auto narrow = dial(yaml, {"--model.width", "96", "--model.heads", "3", "--model.head_size", "32"}).recipe;
  narrow.model.resolve(32768, 64);
  EXPECT_EQ(narrow.model.layers, 4);
  EXPECT_EQ(narrow.model.width, 96);
  EXPECT_EQ(narrow.model.heads, 3);
}

TEST(DepthDial, IsForModelsFromScratch) {
  Recipe recipe;
  Config config = recipe.bind();
  config.load_text("model: {preset: nanochat-d4}", "test");
  EXPECT_FALSE(turns_depth_dial(recipe, config)) << "a preset is a size alone";
  config.apply({"--model.depth", "6", "--train.init_from", "runs/a"});
  EXPECT_FALSE(turns_depth_dial(recipe, config));
}

TEST(StepTokens, GiveTheMicroBatchesOfAStep) {
  TrainConfig train;
  train.micro_batch = 4, train.step_tokens = 1 << 16;
  resolve_accumulate(train, 2048, 2);
  EXPECT_EQ(train.accumulate, 4);
  train.step_tokens = 1000;
  const std::string refused =
      testing::error_of(ExitCode::kUsage, [&] { resolve_accumulate(train, 2048, 1); });
  EXPECT_NE(refused.find("4 rows of 2048 tokens x 1 process = 8192"), std::string::npos) << refused;
}

}  // namespace
}  // namespace tightloop
