#include "model/llama.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

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

TEST(Llama, OnlyMatricesDecay) {
  const Llama model(small(), 1);
  for (const auto& parameter : model.parameters().all())
    EXPECT_EQ(parameter.decay, parameter.name.find("norm") == std::string::npos) << parameter.name;
}

TEST(Llama, TheFutureDoesNotChangeThePast) {
  c10::NoGradGuard no_grad;
  Llama model(small(), 1);
  const auto a = model.logits(model.forward(ids_of({1, 2, 3, 4, 5})).hidden_BTD);
  const auto b = model.logits(model.forward(ids_of({1, 2, 3, 9, 9})).hidden_BTD);
  EXPECT_TRUE(at::allclose(a.narrow(1, 0, 3), b.narrow(1, 0, 3), 1e-5, 1e-6));
  EXPECT_FALSE(at::allclose(a.narrow(1, 3, 2), b.narrow(1, 3, 2), 1e-2, 1e-2));
}

TEST(Llama, TheCacheGivesWhatThePassOverEverythingGives) {
  c10::NoGradGuard no_grad;
  Llama model(small(), 1);
  const auto ids = at::arange(0, 300, at::kLong).remainder(50).view({2, 150});
  const auto whole = model.logits(model.forward(ids).hidden_BTD);
  KvCache cache(2);
  std::vector<at::Tensor> parts{model.logits(model.forward(ids.narrow(1, 0, 100), {.cache = &cache}).hidden_BTD)};
  for (int64_t t = 100; t < 150; ++t)
    parts.push_back(model.logits(model.forward(ids.narrow(1, t, 1), {.cache = &cache}).hidden_BTD));
  EXPECT_EQ(cache.length(), 150);  // over the cache's first block of 128
  const auto pieces = at::cat(parts, 1);
  EXPECT_LT(((pieces - whole).abs().max() / whole.abs().max()).item<double>(), 1e-5);
}

TEST(Llama, RowsOfACacheCanBeChosen) {
  c10::NoGradGuard no_grad;
  Llama model(small(), 1);
  const auto ids = at::tensor(std::vector<int64_t>{1, 2, 3, 4, 5, 6}).view({2, 3});
  KvCache both(2), second(2);
  model.forward(ids, {.cache = &both}).hidden_BTD;
  model.forward(ids.narrow(0, 1, 1), {.cache = &second}).hidden_BTD;
  both.select_rows(at::tensor(std::vector<int64_t>{1}));
  EXPECT_TRUE(at::allclose(model.forward(ids_of({7}), {.cache = &both}).hidden_BTD, model.forward(ids_of({7}), {.cache = &second}).hidden_BTD, 1e-5, 1e-6));
}

TEST(Llama, EveryParameterGetsAGradient) {
  for (const bool tied : {true, false}) {
    auto config = small();
    config.tie_embeddings = tied;
    Llama model(config, 1);
    model.logits(model.forward(ids_of({1, 2, 3, 4})).hidden_BTD).pow(2).sum().backward();
    for (const auto& parameter : model.parameters().all()) {
      ASSERT_TRUE(parameter.value.grad().defined()) << parameter.name;
      EXPECT_GT(parameter.value.grad().abs().max().item<double>(), 0) << parameter.name;
    }
  }
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
