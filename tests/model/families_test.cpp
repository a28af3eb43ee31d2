// What every family must hold to, whatever its architecture.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "model/language_model.h"
#include "model/model_size.h"
#include "ops/compare.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::random_tensor;
using testing::relative_error;

constexpr int64_t kVocab = 50, kContext = 160;  // nanochat's short window is then 128

class Families : public ::testing::TestWithParam<std::string> {
 protected:
  static ModelConfig config() {
    ModelConfig config;
    config.family = GetParam(), config.layers = 3, config.width = 32, config.heads = 4, config.init_std = 0.2;
    config.vocab_size = kVocab, config.context = kContext, config.window_pattern = "SL";
    if (config.family != "gpt2") config.kv_heads = 2;
    config.experts = 4, config.experts_per_token = 2;
    config.resolve(0, 0);
    return config;
  }
  /// With random weights everywhere, also where a family starts with zeros or ones.
  static std::unique_ptr<LanguageModel> model(const ModelConfig& config) {
    auto model = make_model(config, 1);
    uint64_t seed = 0;
    for (const auto& parameter : model->parameters().all()) {
      auto value = parameter.value.detach();
      const bool scale =
          parameter.name.find("norm") != std::string::npos || parameter.name == "residual_scales";
      value.copy_(random_tensor(value.sizes(), at::kFloat, ++seed, scale ? 0.1 : 0.2) + (scale ? 1.0 : 0.0));
    }
    return model;
  }
  static at::Tensor ids(int64_t rows, int64_t length) {
    return random_tensor({rows, length}, at::kFloat, 9, 1000).abs().to(at::kLong).remainder(kVocab);
  }
};

at::Tensor logits_of(LanguageModel& model, const at::Tensor& ids, const Pass& pass = {}) {
  return model.logits(model.forward(ids, pass).hidden_BTD);
}

TEST_P(Families, TheFutureDoesNotChangeThePast) {
  c10::NoGradGuard no_grad;
  const auto model = this->model(config());
  auto a = ids(2, 40), b = a.clone();
  b.narrow(1, 30, 10).add_(1).remainder_(kVocab);
  const auto before = logits_of(*model, a), after = logits_of(*model, b);
  EXPECT_LT(relative_error(after.narrow(1, 0, 30), before.narrow(1, 0, 30)), 1e-5);
  EXPECT_GT(relative_error(after.narrow(1, 30, 10), before.narrow(1, 30, 10)), 1e-2);
}

TEST_P(Families, TheCacheGivesWhatThePassOverEverythingGives) {
  c10::NoGradGuard no_grad;
  const auto model = this->model(config());
  const auto row = ids(2, kContext);
  const auto whole = logits_of(*model, row);
  KvCache cache(config().layers);
  std::vector<at::Tensor> parts;
  // A prompt, single tokens, and turns of several tokens, over the cache's first block and nanochat's window.
  for (const int64_t length : {20, 1, 1, 7, 100, 1, 2, 1, 12, 15}) {
    const auto piece = row.narrow(1, cache.length(), length);
    parts.push_back(logits_of(*model, piece, {.cache = &cache}));
  }
  ASSERT_EQ(cache.length(), kContext);
  EXPECT_LT(relative_error(at::cat(parts, 1), whole), 1e-5);
}

TEST_P(Families, PackedDocumentsAreAsIfAlone) {
  c10::NoGradGuard no_grad;
  const auto model = this->model(config());
  const auto row = ids(2, 150);
  const std::vector<std::vector<int64_t>> lengths{{3, 140, 1, 6}, {150}};  // one longer than the short window
  std::vector<int32_t> documents;
  std::vector<at::Tensor> alone;
  int32_t document = 0;
  for (int64_t r = 0; r < 2; ++r) {
    std::vector<at::Tensor> parts;
    int64_t begin = 0;
    for (const int64_t length : lengths[r]) {
      parts.push_back(logits_of(*model, row.narrow(0, r, 1).narrow(1, begin, length)));
      documents.insert(documents.end(), length, document++);
      begin += length;
    }
    alone.push_back(at::cat(parts, 1));
  }
  const auto packed =
      logits_of(*model, row, {.documents_BT = at::tensor(documents, at::kInt).view({2, 150})});
  EXPECT_LT(relative_error(packed, at::cat(alone, 0)), 1e-5);
}

TEST_P(Families, EveryParameterGetsAGradient) {
  for (const bool tied : {true, false}) {
    auto sizes = config();
    if (GetParam() != "nanochat") sizes.tie_embeddings = tied;
    const auto model = this->model(sizes);
    logits_of(*model, ids(2, 20)).pow(2).sum().backward();
    for (const auto& parameter : model->parameters().all()) {
      ASSERT_TRUE(parameter.value.grad().defined()) << parameter.name;
      EXPECT_GT(parameter.value.grad().abs().max().item<double>(), 0) << parameter.name;
    }
  }
}

TEST_P(Families, DropoutIsForTrainingAlone) {
  if (GetParam() == "nanochat") GTEST_SKIP() << "has no dropout";
  c10::NoGradGuard no_grad;
  auto sizes = config();
  sizes.dropout = 0.3;
  const auto model = this->model(sizes);
  const auto row = ids(1, 20);
  const auto still = logits_of(*model, row);
  EXPECT_TRUE(at::equal(still, logits_of(*model, row)));
  EXPECT_THROW(logits_of(*model, row, {.training = true}), c10::Error) << "nothing says what to drop";
  const auto dropped = [&](int64_t random) {
    return logits_of(*model, row, {.training = true, .random = at::tensor(random, at::kLong)});
  };
  EXPECT_GT(relative_error(dropped(1), still), 1e-2);
  EXPECT_GT(relative_error(dropped(1), dropped(2)), 1e-2);
  EXPECT_TRUE(at::equal(dropped(1), dropped(1)));
}

TEST_P(Families, AttentionThatCouldDropAgreesWithTorchs) {
  if (GetParam() == "nanochat") GTEST_SKIP() << "has no dropout";
  auto sizes = config();
  sizes.dropout = 1e-12;  // takes the path with dropout, and drops none of these few elements
  const auto model = this->model(sizes);
  const auto row = ids(2, 20);
  const auto documents = at::arange(40, at::kInt).view({2, 20}).floor_divide(7);
  for (const auto& packed : {at::Tensor(), documents}) {
    const auto gradients = [&](const Pass& pass) {
      const auto logits = logits_of(*model, row, pass);
      auto results = torch::autograd::grad({logits.pow(2).sum()}, model->parameters().values());
      results.push_back(logits);
      return results;
    };
    const auto wanted = gradients({.documents_BT = packed});
    const auto got =
        gradients({.training = true, .documents_BT = packed, .random = at::tensor(int64_t{1}, at::kLong)});
    for (size_t i = 0; i < got.size(); ++i) EXPECT_LT(relative_error(got[i], wanted[i]), 1e-5) << i;
  }
}

TEST_P(Families, GenerationLeavesNothingThatTrainingCannotUse) {
  const auto model = this->model(config());
  {
    c10::InferenceMode inference;
    logits_of(*model, ids(1, 20));
  }
  logits_of(*model, ids(1, 20)).sum().backward();
  EXPECT_TRUE(model->head().weight_VD.grad().defined());
}

TEST_P(Families, HalfPrecisionStaysClose) {
  c10::NoGradGuard no_grad;
  const auto model = this->model(config());
  const auto row = ids(2, 20);
  const auto wide = logits_of(*model, row);
  model->parameters().to(at::kCPU, at::kBFloat16);
  const auto hidden = model->forward(row).hidden_BTD;
  EXPECT_EQ(hidden.scalar_type(), at::kBFloat16);
  if (GetParam() == "qwen3_moe") return;  // rounding moves tokens between experts
  EXPECT_LT(relative_error(model->logits(hidden).to(at::kFloat), wide), 0.1);
}

TEST_P(Families, CountsAreThoseOfTheModel) {
  for (const bool tied : {true, false}) {
    auto sizes = config();
    if (GetParam() != "nanochat") sizes.tie_embeddings = tied;
    const auto model = make_model(sizes, 1);
    const auto size = model_size(sizes);
    int64_t embedding = 0, active = 0, matmul = 0;
    for (const Parameter& parameter : model->parameters().all()) {
      const auto& [name, value] = std::tie(parameter.name, parameter.value);
      const bool expert = name.find("expert_") != std::string::npos;
      const bool table = name.ends_with("embedding") || name == "positions";
      const int64_t met =
          value.numel() * (expert ? sizes.experts_per_token : 1) / (expert ? sizes.experts : 1);
      active += met;
      if (table) embedding += value.numel();
      if (value.dim() >= 2 && !table) matmul += met;
      if (name == "embedding" && sizes.tie_embeddings) matmul += met;
    }
    EXPECT_EQ(size.total, model->parameters().count());
    EXPECT_EQ(size.embedding, embedding);
    EXPECT_EQ(size.active, active);
    EXPECT_EQ(size.matmul, matmul);
  }
}

INSTANTIATE_TEST_SUITE_P(Each, Families,
                         ::testing::Values("gpt2", "llama", "qwen2", "qwen3", "qwen3_moe", "nanochat"),
                         [](const auto& info) { return info.param; });

std::string refusal(const std::function<void(ModelConfig&)>& change) {
  ModelConfig config;
  change(config);
  return error_of(ExitCode::kUsage, [&] { config.resolve(257, 0); });
}

TEST(ModelConfig, WhatAFamilyDoesNotHaveIsRefused) {
  const auto expect = [](const std::string& word, const std::function<void(ModelConfig&)>& change) {
    EXPECT_NE(refusal(change).find(word), std::string::npos) << refusal(change);
  };
  expect("model.depth", [](auto& c) { c.depth = 4; });
  expect("model.context", [](auto& c) { c.family = "gpt2"; });
  expect("model.kv_heads", [](auto& c) { c.family = "gpt2", c.context = 8, c.kv_heads = 2; });
  expect("rope_scaling",
         [](auto& c) { c.family = "gpt2", c.context = 8, c.rope_scaling = RopeScaling::kLlama3; });
  expect("model.context", [](auto& c) { c.family = "nanochat"; });
  expect("dropout", [](auto& c) { c.family = "nanochat", c.context = 8, c.dropout = 0.1; });
  expect("S and L", [](auto& c) { c.family = "nanochat", c.context = 8, c.window_pattern = "SX"; });
  expect("experts_per_token",
         [](auto& c) { c.family = "qwen3_moe", c.experts = 2, c.experts_per_token = 3; });
  expect("rope_high_freq", [](auto& c) { c.rope_scaling = RopeScaling::kLlama3, c.rope_low_freq = 4; });
}

TEST(ModelConfig, NanochatsDialSetsTheRest) {
  for (const auto& [depth, width] :
       std::vector<std::pair<int64_t, int64_t>>{{4, 256}, {5, 384}, {12, 768}, {20, 1280}}) {
    ModelConfig config;
    config.family = "nanochat", config.depth = depth;
    for (int times = 0; times < 2; ++times) config.resolve(32768, 2048);  // a run resolves what it saved
    EXPECT_EQ(config.layers, depth);
    EXPECT_EQ(config.width, width);
    EXPECT_EQ(config.heads * 128, width);
    EXPECT_EQ(config.ffn, 4 * width);
    EXPECT_EQ(config.window(0), 512);
    EXPECT_EQ(config.window(3), 2048);
    EXPECT_EQ(config.window(depth - 1), 2048);
    EXPECT_EQ(config.softcap, 15);
    EXPECT_FALSE(config.tie_embeddings);
  }
}

TEST(Nanochat, WeightsStartAsItsAuthorsStartThem) {
  ModelConfig config;
  config.family = "nanochat", config.depth = 4;
  config.resolve(512, 256);
  const auto model = make_model(config, 1);
  const auto at = [&](const char* name) { return model->parameters().find(name)->value; };
  const double bound = std::sqrt(3.0 / 256);
  EXPECT_NEAR(at("embedding").std().item<double>(), 0.8, 0.01);
  EXPECT_NEAR(at("head").std().item<double>(), 0.001, 1e-5);
  EXPECT_NEAR(at("blocks.0.qkv").std().item<double>(), 1 / std::sqrt(256.0), 1e-3);
  EXPECT_LE(at("blocks.0.qkv").abs().max().item<double>(), bound);
  EXPECT_GT(at("blocks.0.qkv").abs().max().item<double>(), 0.99 * bound);
  EXPECT_LE(at("blocks.3.up").abs().max().item<double>(), 0.4 * bound + 1e-7);
  EXPECT_EQ(at("blocks.1.out").abs().max().item<double>(), 0);
  EXPECT_EQ(at("blocks.1.down").abs().max().item<double>(), 0);
  EXPECT_GE(at("smear_gate").min().item<double>(), 0);
  EXPECT_LE(at("blocks.1.value_gate").max().item<double>(), 0.02);
  EXPECT_EQ(model->parameters().find("blocks.0.value_gate"), nullptr);
  EXPECT_NEAR(at("residual_scales")[0].item<double>(), 1.15, 1e-6);
  EXPECT_NEAR(at("residual_scales")[3].item<double>(), 1.05, 1e-6);
  EXPECT_NEAR(at("x0_scales")[3].item<double>(), 0.05, 1e-6);
  EXPECT_NEAR(at("backout_scale")[0].item<double>(), 0.2, 1e-6);
}

TEST(Gpt2, MoreTokensThanPositionsAreRefused) {
  ModelConfig config;
  config.family = "gpt2", config.context = 8;
  config.resolve(20, 0);
  const auto model = make_model(config, 1);
  const auto ids = at::arange(9, at::kLong).unsqueeze(0);
  EXPECT_NE(error_of(ExitCode::kUsage, [&] { model->forward(ids); }).find("8"), std::string::npos);
}

}  // namespace
}  // namespace tightloop
