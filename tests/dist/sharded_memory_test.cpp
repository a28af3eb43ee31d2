// What one of several processes is predicted to hold, against what its allocator was asked for.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "dist/several.h"
#include "model/language_model.h"
#include "train/allocations.h"
#include "train/engine/loss.h"
#include "train/optim/optimizer.h"
#include "train/settings/memory_plan.h"

namespace tightloop::testing {
namespace {

constexpr int64_t kRows = 2, kLength = 64;

/// nanochat's shape: value embeddings, a head of its own, Muon's matrices. Most of it is state, as of the
/// large one. Buckets are small, because how many of them travel at once is chance.
ModelConfig nanochat(int64_t layers, int64_t vocab_size) {
  ModelConfig config;
  config.family = "nanochat", config.layers = layers, config.width = 256, config.heads = 4;
  config.vocab_size = vocab_size, config.context = kLength;
  config.resolve(0, kLength);
  return config;
}

void train_step(LanguageModel& model, Optimizer& optimizer) {
  const auto ids = at::full({kRows, kLength}, 3, at::kLong);
  const DeviceBatch batch{.inputs_BT = ids, .targets_BT = ids};
  optimizer.begin_weights(/*by_block=*/true);
  const auto loss = loss_of(model, batch, {.training = true, .fused_head = AutoSwitch::kOn});
  optimizer.begin_gradients({});
  loss.objective.backward();
  optimizer.accumulate({});
  optimizer.finish_gradients();
  optimizer.step({.lr_scale = 1, .decay_scale = 1, .momentum = 0.9}, static_cast<double>(kRows * kLength));
}

/// The ratio of what was predicted to the most that was allocated, from the model's weights on.
void expect_predicted(OptimizerKind kind, Sharding shard, const ModelConfig& config) {
  Processes processes;
  TrainConfig train;
  train.micro_batch = kRows, train.fused_head = AutoSwitch::kOn, train.optimizer = kind;
  const DistConfig dist{.shard = shard, .bucket_mb = 1};
  const auto planner =
      MemoryPlanner(config, train, kLength, /*element=*/2, /*cuda=*/false).among(dist, processes.world());
  const auto plan = planner.plan(planner.written());

  const Allocations all;
  const auto model = make_model(config, 1);
  Optimizer optimizer(model->parameters(), train, config, at::kBFloat16,
                      {.processes = &processes, .dist = dist});
  train_step(*model, optimizer);  // tables are made once
  const double before = all.now();
  const Allocations second;
  train_step(*model, optimizer);
  const double measured = before + second.peak();
  if (processes.main())
    std::printf("predicted / measured: %.3f of %.2f GiB\n", plan.total() / measured, measured / (1 << 30));
  EXPECT_NEAR(plan.total() / measured, 1, 0.1)
      << "predicted " << plan.total() << " (weights " << plan.weights << ", masters " << plan.masters
      << ", moments " << plan.moments << ", gradients " << plan.gradients << ", activations "
      << plan.activations << ", working " << plan.working << "), measured " << measured << ", of which "
      << before << " from step to step";
}

void expect_predicted(OptimizerKind kind, Sharding shard, int64_t layers = 8, int64_t vocab_size = 1024) {
  expect_predicted(kind, shard, nanochat(layers, vocab_size));
}

TEST(ShardedMemory, AdamwIsWithinATenth) {
  if (!in_child()) return expect_success(2);
  expect_predicted(OptimizerKind::kAdamw, Sharding::kOptimizer);
}
TEST(ShardedMemory, MuonIsWithinATenth) {
  if (!in_child()) return expect_success(2);
  expect_predicted(OptimizerKind::kMuon, Sharding::kOptimizer, 4, 4096);
}
// Here the update works in more than a pass.
TEST(ShardedMemory, MuonOfManyMatricesIsWithinATenth) {
  if (!in_child()) return expect_success(2);
  expect_predicted(OptimizerKind::kMuon, Sharding::kOptimizer);
}
TEST(ShardedMemory, MuonWithoutShardsIsWithinATenth) {
  if (!in_child()) return expect_success(2);
  expect_predicted(OptimizerKind::kMuon, Sharding::kNone);
}
TEST(ShardedMemory, ShardedGradientsAreWithinATenth) {
  if (!in_child()) return expect_success(2);
  expect_predicted(OptimizerKind::kAdamw, Sharding::kGradients);
}
TEST(ShardedMemory, UnshardedIsWithinATenth) {
  if (!in_child()) return expect_success(2);
  expect_predicted(OptimizerKind::kAdamw, Sharding::kNone);
}

// The real size.
TEST(ShardedMemory, NanochatD20IsWithinATenth) {
  if (!std::getenv("TIGHTLOOP_D20")) GTEST_SKIP() << "two processes of 12 GiB: set TIGHTLOOP_D20=1";
  if (!in_child()) return expect_success(TempFolder(), 2, {}, std::chrono::hours(1));
  ModelConfig config;
  config.family = "nanochat", config.depth = 20, config.vocab_size = 32768, config.context = kLength;
  config.resolve(0, kLength);
  ASSERT_EQ(config.width, 1280);
  expect_predicted(OptimizerKind::kMuon, Sharding::kOptimizer, config);
}

/// The most that is allocated while an optimizer is made, and what it leaves; both with the model's weights.
void expect_no_more_to_begin_with(OptimizerKind kind, Sharding shard) {
  Processes processes;
  TrainConfig train;
  train.optimizer = kind;
  const ModelConfig config = nanochat(8, 1024);
  const Allocations all;
  const auto model = make_model(config, 1);
  const double fp32 = all.now();
  const Optimizer optimizer(model->parameters(), train, config, at::kBFloat16,
                            {.processes = &processes, .dist = {.shard = shard, .bucket_mb = 1}});
  // What comes of it, or the fp32 weights that there are to begin with and this process's part of them.
  const double part = fp32 / processes.world(), bound = std::max(all.now(), fp32 + part);
  EXPECT_LT(all.peak(), 1.05 * bound) << "fp32 weights " << fp32 << ", afterwards " << all.now();
}

TEST(ShardedMemory, MakingAnOptimizerTakesNoMoreThanTraining) {
  if (!in_child()) return expect_success(4);
  expect_no_more_to_begin_with(OptimizerKind::kAdamw, Sharding::kOptimizer);
}
TEST(ShardedMemory, MakingOneOfShardedGradientsTakesNoMoreThanTraining) {
  if (!in_child()) return expect_success(4);
  expect_no_more_to_begin_with(OptimizerKind::kAdamw, Sharding::kGradients);
}
TEST(ShardedMemory, MakingMuonTakesNoMoreThanTraining) {
  if (!in_child()) return expect_success(4);
  expect_no_more_to_begin_with(OptimizerKind::kMuon, Sharding::kOptimizer);
}

}  // namespace
}  // namespace tightloop::testing
