#include "train/optim/bucket_plan.h"

#include <gtest/gtest.h>

#include <numeric>

#include "train/optim/step_prediction.h"

namespace tightloop {
namespace {

ModelConfig small(const std::string& family, bool tied = true) {
  ModelConfig config;
  config.family = family, config.layers = 3, config.width = 64, config.heads = 4, config.vocab_size = 512;
  config.context = 32, config.tie_embeddings = tied;
  config.resolve(0, 32);
  return config;
}

BucketPlanOptions options(double bucket_mb, Sharding shard = Sharding::kNone, int world = 4) {
  return {
      .dist = {.shard = shard, .bucket_mb = bucket_mb}, .world = world, .length = 32, .compute = at::kFloat};
}

double gradient_bytes(const BucketPlan& plan) {
  double bytes = 0;
  for (const auto& bucket : plan.buckets) bytes += bucket.gradient_bytes;
  return bytes;
}

// By hand, of gpt2 with D = 64: a block has 12 D^2 in matrices, of which qkv 3, and attention over 32
// positions.
TEST(BucketPlan, IsReadyByTheFlopsBehindIt) {
  const auto model = make_shapes(small("gpt2", /*tied=*/false));
  const BucketPlan plan = plan_buckets(*model, options(0.001));  // each parameter alone, but small ones
  const double D = 64, block = 2 * 12 * D * D, attention = 4 * D * 32, head = 2 * 512 * D;
  EXPECT_DOUBLE_EQ(plan.forward_flops, 3 * (block + attention) + head);
  EXPECT_DOUBLE_EQ(plan.backward_flops, 2 * plan.forward_flops);
  const auto find = [&](const std::string& name) {
    for (const auto& bucket : plan.buckets)
      if (bucket.first == name) return bucket;
    ADD_FAILURE() << name;
    return PlannedBucket{};
  };
  EXPECT_DOUBLE_EQ(find("head").ready, head / plan.forward_flops);
  EXPECT_EQ(find("head").needed, 0) << "what is in no block is waited for first";
  EXPECT_DOUBLE_EQ(find("blocks.2.down").ready, (head + 2 * 4 * D * D) / plan.forward_flops);
  EXPECT_DOUBLE_EQ(find("blocks.2.qkv").ready, (head + block + attention) / plan.forward_flops);
  for (const char* name : {"blocks.1.qkv", "blocks.1.down"})
    EXPECT_DOUBLE_EQ(find(name).needed, (block + attention) / plan.forward_flops) << "the block's begin";
  EXPECT_DOUBLE_EQ(plan.buckets.back().ready, 1);
  EXPECT_DOUBLE_EQ(plan.buckets.back().needed, 0);
}

TEST(BucketPlan, ATiedHeadIsWholeWithTheEmbedding) {
  const auto model = make_shapes(small("gpt2"));
  const BucketPlan plan = plan_buckets(*model, options(0.001));
  EXPECT_EQ(plan.buckets.back().last, "embedding");
  EXPECT_DOUBLE_EQ(plan.buckets.back().ready, 1);
  EXPECT_GT(plan.buckets.front().ready, 0.1) << "the head's products come before everything";
  BucketPlanOptions fused = options(0.001);
  fused.head_in_forward = true;
  EXPECT_LT(plan_buckets(*model, fused).buckets.front().ready, 0.05) << "unless forward has done them";
}

TEST(BucketPlan, HasEveryParameterOnceAndIsCutAsItIsTold) {
  for (const char* family : {"gpt2", "llama", "nanochat", "qwen3_moe"}) {
    ModelConfig config = small(family, std::string(family) != "nanochat");
    const auto model = make_shapes(config);
    for (const Sharding shard : {Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients}) {
      const BucketPlan plan = plan_buckets(*model, options(0.1, shard));
      const auto values = static_cast<double>(model->parameters().count());
      EXPECT_GE(gradient_bytes(plan), 4 * values) << family;
      EXPECT_LE(gradient_bytes(plan),
                4.0 * values + 512.0 * 4 * static_cast<double>(model->parameters().all().size()))
          << family;
      double before = 0;
      for (const auto& bucket : plan.buckets) {
        EXPECT_GT(bucket.ready, 0) << family << " " << bucket.first;
        EXPECT_LE(bucket.ready, 1 + 1e-12);
        EXPECT_GE(bucket.needed, 0);
        EXPECT_LT(bucket.needed, 1);
        before = bucket.ready;
      }
      EXPECT_DOUBLE_EQ(before, 1) << "the last one is the embedding's";
    }
  }
}

TEST(BucketPlan, ShardedStateIsDividedNearlyEvenly) {
  const auto model = make_shapes(small("llama"));
  const auto values = model->parameters().count();
  EXPECT_EQ(plan_buckets(*model, options(1)).most_owned, values) << "nothing is sharded";
  const BucketPlan four = plan_buckets(*model, options(1, Sharding::kOptimizer));
  EXPECT_NEAR(static_cast<double>(four.most_owned) / static_cast<double>(values), 0.25, 0.02);
  EXPECT_NEAR(four.update_share, 0.25, 0.02);
  EXPECT_EQ(plan_buckets(*model, options(1, Sharding::kOptimizer, 1)).most_owned, values) << "alone";
  BucketPlanOptions muon = options(1, Sharding::kOptimizer);
  muon.optimizer = OptimizerKind::kMuon;
  const BucketPlan matrices = plan_buckets(*model, muon);
  EXPECT_GT(matrices.most_owned_matrices, 0);
  EXPECT_LT(matrices.most_owned_matrices, matrices.most_owned);
  EXPECT_GE(matrices.update_share, 0.25);
  EXPECT_LT(matrices.update_share, 0.5);
}

Recipe recipe_of(Sharding shard, ReduceDtype reduce = ReduceDtype::kFp32) {
  Recipe recipe;
  recipe.model = small("gpt2");
  recipe.data.seq_len = 32;
  recipe.dist = {.shard = shard, .reduce = reduce, .bucket_mb = 0.1};
  return recipe;
}

constexpr ComputeTimes kTimes{.forward = 0.1, .backward = 0.2, .update = 0.04, .other = 0, .source = {}};

StepPrediction predicted(const Recipe& recipe, const Network& network) {
  return predict_step(recipe, plan_buckets(recipe, network.world, at::kBFloat16, false), network, kTimes);
}

Network link_of(double bytes_per_second, int64_t world = 4) {
  return {.world = world, .per_node = world, .inside = {.peak = bytes_per_second}};
}

// 4 (or 2) bytes a gradient and 2 a weight: each process sends all of its parts but one, twice in an
// all-reduce.
TEST(StepPrediction, BytesAreThoseOfTheFormula) {
  const Network network = link_of(1e9);
  const auto padded = [&](const Recipe& recipe) {
    return gradient_bytes(plan_buckets(recipe, 4, at::kBFloat16, false));
  };
  const Recipe none = recipe_of(Sharding::kNone), half = recipe_of(Sharding::kNone, ReduceDtype::kCompute),
               sharded = recipe_of(Sharding::kOptimizer);
  EXPECT_DOUBLE_EQ(predicted(none, network).reduced_bytes, 2 * 0.75 * padded(none));
  EXPECT_EQ(predicted(none, network).gathered_bytes, 0);
  EXPECT_NEAR(predicted(half, network).reduced_bytes / predicted(none, network).reduced_bytes, 0.5, 0.01);
  EXPECT_DOUBLE_EQ(predicted(sharded, network).reduced_bytes, 0.75 * padded(sharded));
  EXPECT_DOUBLE_EQ(predicted(sharded, network).gathered_bytes, 0.75 * padded(sharded) / 2);
  Recipe accumulated = recipe_of(Sharding::kGradients);
  accumulated.train.accumulate = 5;
  EXPECT_DOUBLE_EQ(predicted(accumulated, network).reduced_bytes, 5 * 0.75 * padded(accumulated));
  accumulated.dist.shard = Sharding::kOptimizer;
  EXPECT_DOUBLE_EQ(predicted(accumulated, network).reduced_bytes, 0.75 * padded(accumulated));
}

TEST(StepPrediction, WithoutLimitAStepIsItsComputing) {
  const auto none = predicted(recipe_of(Sharding::kNone), link_of(1e30));
  EXPECT_NEAR(none.step.step, 0.34, 1e-9);
  const auto sharded = predicted(recipe_of(Sharding::kOptimizer), link_of(1e30));
  EXPECT_NEAR(sharded.step.step, 0.30 + 0.04 * sharded.plan.update_share, 1e-9);
  EXPECT_NEAR(sharded.alone, 0.34, 1e-9);
  const auto alone = predicted(recipe_of(Sharding::kOptimizer), link_of(1, 1));
  EXPECT_NEAR(alone.step.step, 0.34, 1e-9);
  EXPECT_EQ(alone.reduced_bytes, 0);
}

TEST(StepPrediction, ASlowLinkSetsTheStep) {
  for (const Sharding shard : {Sharding::kNone, Sharding::kOptimizer}) {
    const auto step = predicted(recipe_of(shard), link_of(1e5));
    EXPECT_NEAR(step.step.communication, (step.reduced_bytes + step.gathered_bytes) / 1e5, 0.01);
    EXPECT_GT(step.step.step, step.step.communication);
    EXPECT_LE(step.step.step, step.without_overlap);
  }
}

}  // namespace
}  // namespace tightloop
