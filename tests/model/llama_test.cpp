#include "model/families/llama/llama.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;

ModelConfig small() {
  ModelConfig config;
  config.layers = 2, config.width = 32, config.heads = 4, config.kv_heads = 2, config.init_std = 0.2;
  config.resolve(50, 0);
  return config;
}

at::Tensor ids_of(std::initializer_list<int64_t> ids) {
  return at::tensor(std::vector<int64_t>(ids)).unsqueeze(0);
}

TEST(ModelConfig, ZeroesAreFilledIn) {
  const auto config = small();
  EXPECT_EQ(config.vocab_size, 64);
  EXPECT_EQ(config.ffn, 128);  // 32 * 8 / 3 = 85, rounded up to 64s
  ModelConfig plain;
  plain.resolve(257, 0);
  EXPECT_EQ(plain.kv_heads, plain.heads);
}

TEST(ModelConfig, SizesThatDoNotFitAreRefused) {
  const auto refuse = [](auto change) {
    ModelConfig config;
    change(config);
    return error_of(ExitCode::kUsage, [&] { config.resolve(257, 0); });
  };
  EXPECT_NE(refuse([](auto& c) { c.width = 130; }).find("model.heads"), std::string::npos);
  EXPECT_NE(refuse([](auto& c) { c.kv_heads = 3; }).find("model.kv_heads"), std::string::npos);
  EXPECT_NE(refuse([](auto& c) { c.width = 36, c.heads = 4; }).find("even"), std::string::npos);
  EXPECT_NE(refuse([](auto& c) { c.vocab_size = 100; }).find("257"), std::string::npos);
}

TEST(Llama, TheSameSeedGivesTheSameWeights) {
  const Llama a(small(), 1), b(small(), 1), c(small(), 2);
  EXPECT_TRUE(
      at::equal(a.parameters().find("blocks.1.qkv")->value, b.parameters().find("blocks.1.qkv")->value));
  EXPECT_FALSE(
      at::equal(a.parameters().find("blocks.1.qkv")->value, c.parameters().find("blocks.1.qkv")->value));
  EXPECT_FALSE(
      at::equal(a.parameters().find("blocks.0.qkv")->value, a.parameters().find("blocks.1.qkv")->value));
}

TEST(Llama, InitialWeightsHaveTheirSpread) {
  ModelConfig config = small();
  config.width = 256;
  const Llama model(config, 3);
  const auto qkv = model.parameters().find("blocks.0.qkv")->value;
  EXPECT_NEAR(qkv.std().item<double>(), config.init_std, 0.01 * config.init_std);
  EXPECT_NEAR(qkv.mean().item<double>(), 0, 0.01 * config.init_std);
  EXPECT_NEAR(model.parameters().find("blocks.0.out")->value.std().item<double>(), config.init_std / 2,
              0.01 * config.init_std);
  EXPECT_EQ(model.parameters().find("final_norm")->value.min().item<double>(), 1);
}

// AdamW decays what has two dimensions or more.
TEST(Llama, OnlyNormsAreVectors) {
  const Llama model(small(), 1);
  for (const auto& parameter : model.parameters().all())
    EXPECT_EQ(parameter.value.dim() >= 2, parameter.name.find("norm") == std::string::npos) << parameter.name;
}

TEST(Parameters, MovingToAnotherDtypeKeepsTheHandles) {
  Llama model(small(), 1);
  model.parameters().to(at::kCPU, at::kBFloat16);
  EXPECT_EQ(model.head().weight_VD.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(model.head().weight_VD.requires_grad());
  const auto logits = model.logits(model.forward(ids_of({1, 2, 3})).hidden_BTD);
  EXPECT_EQ(logits.scalar_type(), at::kBFloat16);
  logits.sum().backward();
  EXPECT_EQ(model.head().weight_VD.grad().scalar_type(), at::kBFloat16);
}

}  // namespace
}  // namespace tightloop
