// Fifty steps of fine-tuning against MiniMind's own loop: tests/golden/make_sft.py made the numbers and says
// how.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>

#include "golden.h"
#include "ops/compare.h"
#include "support.h"
#include "train/engine_fixture.h"

namespace tightloop {
namespace {

ModelConfig sizes(bool experts) {
  ModelConfig sizes;
  sizes.family = experts ? "qwen3_moe" : "qwen3";
  sizes.layers = 2, sizes.width = 16, sizes.heads = 2, sizes.kv_heads = 1, sizes.head_size = 8,
  sizes.ffn = 24;
  sizes.vocab_size = 48, sizes.rope_theta = 1e6;
  sizes.experts = 3, sizes.experts_per_token = 2, sizes.expert_ffn = 16, sizes.balance_coef = 0.05;
  sizes.resolve(0, 12);
  return sizes;
}

TrainConfig settings() {
  TrainConfig config;
  config.steps = 50, config.accumulate = 4, config.loss_norm = LossNorm::kMicro,
  config.schedule = ScheduleKind::kMinimind;
  config.lr = 5e-3, config.clip = 1, config.beta2 = 0.999, config.weight_decay = 0.01;
  config.decay_vectors = true;  // its AdamW knows no groups
  return config;
}

void follow(const std::string& name) {
  const testing::Golden golden("sft.safetensors");
  auto model = make_model(sizes(name == "moe"), 1);
  load_weights(model->parameters(), golden.part(name + ".start."), "sft.safetensors");
  const TrainConfig config = settings();
  testing::EngineFixture f(*model, config, at::kFloat);
  // It reads all of a row and leaves the last prediction out, so that the last token counts for the balance.
  const auto ids = golden["ids"].to(at::kLong), labels = golden["labels"].to(at::kLong);
  auto targets = at::full_like(labels, ops::kIgnoreIndex);
  targets.narrow(2, 0, 11).copy_(labels.narrow(2, 1, 11));
  int64_t seen = 0;
  for (int64_t step = 1; step <= config.steps; ++step) {
    const Rates rates = rates_at(config, step, model->config().width);
    EXPECT_NEAR(f.optimizer.lr(rates) / golden[name + ".rates"][step - 1].item<double>(), 1, 1e-12);
    for (int64_t i = 0; i < config.accumulate; ++i, ++seen) {
      const testing::Ids micro{ids[seen], targets[seen]};
      const double loss = f.sum(LossBuffer::kLoss), balance = f.sum(LossBuffer::kBalance);
      f.add(micro, rates);
      f.pass(i == 0, i + 1 == config.accumulate);
      const double mean = (f.sum(LossBuffer::kLoss) - loss) / static_cast<double>(micro.supervised());
      EXPECT_NEAR(mean / golden[name + ".losses"][seen].item<double>(), 1, 1e-4) << "micro-batch " << seen;
      if (name == "moe") {
        const double expected = golden[name + ".aux"][seen].item<double>();
        EXPECT_NEAR((f.sum(LossBuffer::kBalance) - balance) / expected, 1, 1e-4) << seen;
      }
    }
    const double norm = f.sum(LossBuffer::kGradNorm);
    EXPECT_NEAR(norm / golden[name + ".norms"][step - 1].item<double>(), 1, 1e-3) << "step " << step;
    f.buffer.finish(step);
  }
  EXPECT_EQ(seen, 200);
  for (const auto& [key, tensor] : f.optimizer.weights())
    EXPECT_LT(testing::relative_error(tensor, golden[name + ".end." + key]), 1e-3) << key;
}

TEST(FineTuning, FollowsMiniMind) { follow("dense"); }
TEST(FineTuning, FollowsMiniMindWithExperts) { follow("moe"); }

}  // namespace
}  // namespace tightloop
