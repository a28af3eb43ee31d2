// Predictions against what the allocator was asked for.
#include "train/settings/memory_plan.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <string>

#include "core/device.h"
#include "model/language_model.h"
#include "train/allocations.h"
#include "train/engine/loss.h"

namespace tightloop {
namespace {

struct Case {
  std::string family, checkpointing = "none";
  AutoSwitch head = AutoSwitch::kOn;
  double dropout = 0;
};

std::string name_of(const Case& c) {
  return c.family + "_" + c.checkpointing + "_head_" + std::string(name_of(c.head)) +
         (c.dropout > 0 ? "_dropout" : "");
}

constexpr int64_t kPlanRows = 8, kPlanLength = 96;

ModelConfig config_of(const Case& c) {
  ModelConfig config;
  config.family = c.family, config.layers = 4, config.width = 64, config.heads = 4, config.vocab_size = 512;
  config.context = kPlanLength, config.dropout = c.dropout, config.gradient_checkpointing = c.checkpointing;
  config.experts = 4, config.experts_per_token = 2, config.expert_ffn = 96;
  config.resolve(0, kPlanLength);
  return config;
}

void forward_and_backward(LanguageModel& model, AutoSwitch head) {
  const at::Device device = model.device();
  const auto ids = at::full({kPlanRows, kPlanLength}, 3, at::TensorOptions(at::kLong).device(device));
  const auto random = at::full({}, 7, at::TensorOptions(at::kLong).device(device));
  const DeviceBatch batch{.inputs_BT = ids, .targets_BT = ids, .random = random};
  loss_of(model, batch, {.training = true, .fused_head = head}).objective.backward();
}

class Predicted : public ::testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Each, Predicted,
                         ::testing::Values(Case{"gpt2"}, Case{"gpt2", "all"}, Case{"gpt2", "2"},
                                           Case{"gpt2", "none", AutoSwitch::kOff},
                                           Case{"gpt2", "none", AutoSwitch::kOn, 0.1},
                                           Case{"gpt2", "all", AutoSwitch::kOn, 0.1}, Case{"llama"},
                                           Case{"llama", "all"}, Case{"llama", "none", AutoSwitch::kOn, 0.1},
                                           Case{"qwen3"}, Case{"qwen3", "all"}, Case{"qwen3_moe"},
                                           Case{"qwen3_moe", "all"}, Case{"nanochat"},
                                           Case{"nanochat", "all"}, Case{"nanochat", "2", AutoSwitch::kOff}),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(Predicted, IsWithinATenthOfWhatTheCpuAllocates) {
  const ModelConfig config = config_of(GetParam());
  TrainConfig train;
  train.micro_batch = kPlanRows, train.fused_head = GetParam().head;
  const MemoryPlanner planner(config, train, kPlanLength, /*element=*/4, /*cuda=*/false);
  const auto plan = planner.plan(planner.written());

  const auto model = make_model(config, 1);
  forward_and_backward(*model, GetParam().head);  // tables are made once
  for (const auto& parameter : model->parameters().all()) parameter.value.mutable_grad().reset();
  const testing::Allocations counter;
  forward_and_backward(*model, GetParam().head);
  const double predicted = plan.gradients + plan.activations + plan.working;
  RecordProperty("ratio", std::to_string(predicted / counter.peak()));
  EXPECT_NEAR(predicted / counter.peak(), 1, 0.06)
      << "predicted " << predicted << " (gradients " << plan.gradients << ", activations " << plan.activations
      << ", working " << plan.working << "), measured " << counter.peak();
}

TEST(MemoryPlan, IsWithinATenthOfWhatAGpuAllocates) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  Device& gpu = device("cuda");
  for (const char* checkpointing : {"none", "all"}) {
    ModelConfig config = config_of({"gpt2", checkpointing});
    config.width = 512, config.ffn = 2048, config.head_size = 64, config.heads = 8, config.vocab_size = 8192;
    TrainConfig train;
    train.micro_batch = 64, train.fused_head = AutoSwitch::kOn;
    const MemoryPlanner planner(config, train, kPlanLength, /*element=*/2, /*cuda=*/true);
    const auto plan = planner.plan(planner.written());
    const auto model = make_model(config, 1);
    model->parameters().to(at::kCUDA, at::kBFloat16);
    const auto pass = [&] {
      const auto ids = at::full({64, kPlanLength}, 3, at::TensorOptions(at::kLong).device(at::kCUDA));
      const DeviceBatch batch{.inputs_BT = ids, .targets_BT = ids};
      loss_of(*model, batch, {.training = true, .fused_head = AutoSwitch::kOn}).objective.backward();
      for (const auto& parameter : model->parameters().all()) parameter.value.mutable_grad().reset();
      gpu.synchronize();
    };
    pass();  // libraries take their work space, which stays
    const auto libraries = static_cast<double>(gpu.memory_stats().allocated) - plan.weights;
    gpu.reset_peak_memory();
    const auto before = static_cast<double>(gpu.memory_stats().allocated);
    pass();
    const double measured = static_cast<double>(gpu.memory_stats().allocated_peak) - before + libraries;
    EXPECT_NEAR((plan.gradients + plan.activations + plan.working) / measured, 1, 0.1) << checkpointing;
  }
}

MemoryPlanner gpt2_planner(const char* checkpointing = "none") {
  ModelConfig model;
  Config settings;
  settings.add_section("model", model, "");
  settings.set("model.preset", "gpt2-124m");
  settings.set("use_gradient_checkpointing", checkpointing);
  model.resolve(0, 1024);
  TrainConfig train;
  train.micro_batch = 64;
  return {model, train, 1024, /*element=*/2, /*cuda=*/true};
}

constexpr double kGiB = 1 << 30;

TEST(MemoryPlan, Gpt2HoldsWhatItsShapesSay) {
  const auto planner = gpt2_planner();
  const auto plan = planner.plan(planner.written());
  EXPECT_EQ(plan.weights + plan.masters + plan.moments, 14.0 * 124475904);
  // Sixteen widths of 768 and the statistics of 12 blocks, one width for the last norm.
  EXPECT_NEAR(plan.activations, 65536.0 * (12 * (2 * 16 * 768 + 4 * 12 + 16) + 2 * 768 + 8), 1e6);
  const auto all = gpt2_planner("true").plan(gpt2_planner("true").written());
  EXPECT_LT(all.total(), 0.55 * plan.total());
  EXPECT_GT(gpt2_planner("4").plan(gpt2_planner("4").written()).total(), all.total());
}

TEST(MemoryPlan, AccumulatingHoldsSumsInFp32) {
  const auto planner = gpt2_planner();
  auto choice = planner.written();
  const double once = planner.plan(choice).total();
  choice.accumulate = 2;
  EXPECT_NEAR(planner.plan(choice).total() - once, 4.0 * 124475904, 1);
}

// 124,475,904 parameters in bf16: 2 bytes of weights, 4 of masters, 8 of moments, 4 of gradients in buckets.
TEST(MemoryPlan, ProcessesHoldTheirShare) {
  constexpr double P = 124475904;
  const auto planner = gpt2_planner();
  const auto held = [&](Sharding shard, int64_t world) {
    return planner.among({.shard = shard}, world).plan(planner.written());
  };
  const auto near = [](double bytes, double expected) { EXPECT_NEAR(bytes / expected, 1, 0.01) << bytes; };
  const auto alone = held(Sharding::kOptimizer, 1);
  EXPECT_EQ(alone.total(), planner.plan(planner.written()).total()) << "one process has everything";
  for (const int64_t world : {2, 4, 8}) {
    const auto W = static_cast<double>(world);
    const auto none = held(Sharding::kNone, world), optimizer = held(Sharding::kOptimizer, world),
               gradients = held(Sharding::kGradients, world);
    EXPECT_EQ(none.weights + none.masters + none.moments, 14 * P);
    for (const auto& sharded : {optimizer, gradients}) {
      EXPECT_EQ(sharded.weights, 2 * P);
      near(sharded.masters, 4 * P / W);
      near(sharded.moments, 8 * P / W);
      EXPECT_EQ(sharded.activations, none.activations);
    }
    EXPECT_GE(none.gradients, 4 * P);
    EXPECT_LE(none.gradients, 4 * P + 2 * 50304 * 768 + 1e6) << "one gradient at a time is not in a bucket";
    EXPECT_LE(gradients.gradients, optimizer.gradients) << "its largest bucket is the embedding";
  }
}

TEST(MemoryPlan, AdviceFitsAndKeepsTheRowsOfAStep) {
  const auto planner = gpt2_planner();
  double most = INFINITY;
  for (const double gib : {80, 16, 8, 4, 3}) {
    const auto advice = planner.advice(gib * kGiB);
    ASSERT_TRUE(advice) << gib;
    const double total = planner.plan(*advice).total();
    EXPECT_LE(total, gib * kGiB);
    EXPECT_LE(total, most);
    most = total;
    EXPECT_EQ(advice->micro_batch * advice->accumulate, 64) << gib;
  }
  EXPECT_EQ(planner.advice(80 * kGiB)->micro_batch, 64);
  EXPECT_EQ(planner.advice(16 * kGiB)->recomputed, 0) << "smaller micro-batches cost less";
  EXPECT_FALSE(planner.advice(1 * kGiB));
}

TEST(MemoryPlan, AutoTakesAsFewBlocksAsFit) {
  const auto planner = gpt2_planner();
  ModelConfig model;
  model.layers = 12, model.gradient_checkpointing = "auto";
  EXPECT_EQ(resolved_checkpointing(planner, model, 140 * kGiB), "none");
  EXPECT_EQ(resolved_checkpointing(planner, model, 1 * kGiB), "all");
  const auto some = resolved_checkpointing(planner, model, 16 * kGiB);
  auto choice = planner.written();
  choice.recomputed = std::stoll(some);
  EXPECT_LE(planner.plan(choice).total(), kUsableMemory * 16 * kGiB);
  --choice.recomputed;
  EXPECT_GT(planner.plan(choice).total(), kUsableMemory * 16 * kGiB);
  model.gradient_checkpointing = "3";
  EXPECT_EQ(resolved_checkpointing(planner, model, 1), "3");
}

TEST(MemoryPlan, TheCacheIsEmptiedWhenTheDeviceIsNearlyFullWhateverIsLogged) {
  constexpr auto kTotal = static_cast<int64_t>(80 * kGiB);
  const auto held = [](double gib) { return MemoryStats{.reserved = static_cast<int64_t>(gib * kGiB)}; };
  const TrainConfig train;  // which knows nothing of logging
  EXPECT_FALSE(empties_cache(train, 100, held(71), kTotal));
  EXPECT_TRUE(empties_cache(train, 100, held(73), kTotal));
  EXPECT_FALSE(empties_cache(train, 101, held(73), kTotal)) << "not after every step";
  EXPECT_FALSE(empties_cache(train, 100, {}, kTotal));
}

TEST(MemoryPlan, TheCacheIsEmptiedByTheLimitWhereThereIsOne) {
  constexpr auto kTotal = static_cast<int64_t>(80 * kGiB);
  TrainConfig train;
  train.memory_limit = 20;
  EXPECT_TRUE(empties_cache(train, 100, {.reserved = static_cast<int64_t>(19 * kGiB)}, kTotal));
  EXPECT_FALSE(empties_cache(train, 100, {.reserved = static_cast<int64_t>(17 * kGiB)}, kTotal));
  train.memory_limit = 200;
  EXPECT_TRUE(empties_cache(train, 100, {.reserved = static_cast<int64_t>(73 * kGiB)}, kTotal));
}

TEST(MemoryPlan, TheCacheIsEmptiedAsOftenAsAsked) {
  TrainConfig train;
  train.empty_cache_steps = 7;
  EXPECT_TRUE(empties_cache(train, 14, {}, 1));
  EXPECT_FALSE(empties_cache(train, 15, {}, 1));
}

}  // namespace
}  // namespace tightloop
