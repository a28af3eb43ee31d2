// Activation checkpointing: the same gradients, and less memory.
#include "model/parts/recompute.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/cuda.h>

#include "core/device.h"
#include "model/model_of.h"
#include "model/parts/lora.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::model_of;
using testing::random_tensor;
using Tensors = std::vector<at::Tensor>;

ModelConfig config_of(const std::string& family, const std::string& checkpointing) {
  ModelConfig config;
  config.family = family, config.layers = 4, config.width = 32, config.heads = 4, config.init_std = 0.2;
  config.vocab_size = 50, config.context = 160, config.window_pattern = "SL";
  if (family != "gpt2") config.kv_heads = 2;
  if (family != "nanochat") config.dropout = 0.2;
  config.experts = 4, config.experts_per_token = 2, config.balance_coef = 0.1;
  config.gradient_checkpointing = checkpointing;
  config.resolve(0, 0);
  return config;
}

at::Tensor ids(int64_t rows, int64_t length, int64_t vocab) {
  return random_tensor({rows, length}, at::kFloat, 9, 1000).abs().to(at::kLong).remainder(vocab);
}

constexpr int64_t kLength = 140;  // beyond nanochat's short window

/// Loss, loads of experts where there are any, and all gradients.
Tensors results(LanguageModel& model, bool packed) {
  Pass pass{.training = true, .random = at::tensor(int64_t{77}, at::kLong)};
  if (packed) pass.documents_BT = at::arange(2 * kLength, at::kInt).view({2, kLength}).floor_divide(60);
  const auto forward = model.forward(ids(2, kLength, 50), pass);
  auto loss = model.logits(forward.hidden_BTD).pow(2).mean();
  if (forward.balance.defined()) loss = loss + forward.balance;
  Tensors found{loss.detach()};
  if (forward.expert_loads_LE.defined()) {
    EXPECT_FALSE(forward.expert_loads_LE.requires_grad());
    found.push_back(forward.expert_loads_LE);
  }
  loss.backward();
  for (const auto& parameter : model.parameters().all()) {
    EXPECT_TRUE(parameter.value.grad().defined()) << parameter.name;
    found.push_back(parameter.value.grad());
    parameter.value.mutable_grad().reset();
  }
  return found;
}

class Checkpointing : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Each, Checkpointing, ::testing::Values("gpt2", "llama", "qwen3_moe", "nanochat"),
                         [](const auto& info) { return info.param; });

TEST_P(Checkpointing, GradientsAreTheSameToTheBit) {
  for (const bool packed : {false, true}) {
    const auto whole = model_of(config_of(GetParam(), "none"));
    const auto wanted = results(*whole, packed);
    for (const char* blocks : {"all", "3"}) {
      SCOPED_TRACE(::testing::Message() << blocks << (packed ? ", packed" : ""));
      const auto model = model_of(config_of(GetParam(), blocks));
      for (int times = 0; times < 2; ++times) {  // nothing is left behind by the first
        const auto got = results(*model, packed);
        ASSERT_EQ(got.size(), wanted.size());
        for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], wanted[i])) << "result " << i;
      }
    }
  }
}

TEST_P(Checkpointing, IsForTrainingAlone) {
  c10::NoGradGuard no_grad;
  const auto model = model_of(config_of(GetParam(), "all"));
  const auto row = ids(1, 12, 50);
  const auto whole = model->forward(row).hidden_BTD;
  KvCache cache(4);
  model->forward(row.narrow(1, 0, 11), {.cache = &cache});
  const auto last = model->forward(row.narrow(1, 11, 1), {.cache = &cache}).hidden_BTD;
  EXPECT_LT(testing::relative_error(last, whole.narrow(1, 11, 1)), 1e-5);
}

TEST(Recompute, AdaptersLearnThroughIt) {
  std::vector<Tensors> found;
  for (const char* blocks : {"none", "all"}) {
    const auto model = model_of(config_of("llama", blocks));
    Adapters adapters(model->parameters(), {.rank = 2}, 3);
    adapters.refresh();
    const Pass pass{.training = true, .random = at::tensor(int64_t{7}, at::kLong)};
    model->logits(model->forward(ids(2, 20, 50), pass).hidden_BTD).pow(2).mean().backward();
    auto& gradients = found.emplace_back();
    for (const auto& parameter : adapters.parameters().all()) gradients.push_back(parameter.value.grad());
    for (const auto& parameter : model->parameters().all())
      EXPECT_FALSE(parameter.value.is_leaf() && parameter.value.grad().defined()) << parameter.name;
  }
  ASSERT_EQ(found[0].size(), 16u);
  for (size_t i = 0; i < found[0].size(); ++i) EXPECT_TRUE(at::equal(found[0][i], found[1][i])) << i;
}

TEST(Recompute, RunsTheBlockAgainAndGivesGradientsOfAllThatTookPart) {
  int calls = 0;
  auto weight = random_tensor({5, 5}, at::kFloat, 1).requires_grad_(),
       unused = random_tensor({3}, at::kFloat, 2).requires_grad_();
  auto x = random_tensor({4, 5}, at::kFloat, 3).requires_grad_();
  const auto fixed = random_tensor({5}, at::kFloat, 4);
  const auto block = [&calls, weight](const Tensors& in) {
    ++calls;
    return Tensors{at::tanh(at::linear(in[0], weight)) * in[1], in[0].sum()};
  };
  const auto outputs = recomputed(block, {x, fixed}, {weight, at::Tensor(), unused});
  EXPECT_EQ(calls, 1);
  const auto wanted = torch::autograd::grad({block({x, fixed})[0].pow(2).sum()}, {x, weight});
  calls = 0;
  const auto got = torch::autograd::grad({outputs[0].pow(2).sum()}, {x, weight, unused}, {}, {}, false, true);
  EXPECT_EQ(calls, 1);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(got[i], wanted[i])) << i;
  EXPECT_FALSE(got[2].defined());
  EXPECT_FALSE(weight.grad().defined()) << "nothing is added to .grad behind the caller's back";
}

TEST(Recompute, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"some", "5", "-1", "2.5", ""}) {
    const auto message = error_of(ExitCode::kUsage, [&] { config_of("llama", text); });
    EXPECT_NE(message.find("model.gradient_checkpointing"), std::string::npos) << message;
  }
}

TEST(Recompute, NeedsLessMemoryOnAGpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  Device& gpu = device("cuda");
  std::vector<int64_t> peaks;
  std::vector<Tensors> gradients;
  for (const char* blocks : {"none", "3", "all"}) {
    auto config = config_of("gpt2", blocks);
    config.width = 256, config.ffn = 1024, config.head_size = 64, config.dropout = 0;
    const auto model = model_of(config);
    model->parameters().to(at::kCUDA, at::kBFloat16);
    const auto rows = ids(32, 150, 50).to(at::kCUDA);
    gpu.reset_peak_memory();
    const int64_t before = gpu.memory_stats().allocated;
    model->logits(model->forward(rows, {.training = true}).hidden_BTD).pow(2).mean().backward();
    gpu.synchronize();
    peaks.push_back(gpu.memory_stats().allocated_peak - before);
    auto& own = gradients.emplace_back();
    for (const auto& parameter : model->parameters().all()) own.push_back(parameter.value.grad());
  }
  EXPECT_LT(peaks[1], 0.7 * static_cast<double>(peaks[0]));
  EXPECT_LT(peaks[2], 0.6 * static_cast<double>(peaks[0]));
  for (size_t i = 0; i < gradients[0].size(); ++i)
    EXPECT_LT(testing::relative_error(gradients[2][i], gradients[0][i]), 2e-2) << i;
}

TEST(Recompute, CanBeCaptured) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  auto config = config_of("gpt2", "all");
  const auto model = model_of(config);
  model->parameters().to(at::kCUDA, at::kFloat);
  const auto rows = ids(2, 150, 50).to(at::kCUDA);
  const auto random = at::tensor(int64_t{1}, at::kLong).to(at::kCUDA);
  at::Tensor loss;
  const auto work = [&] {
    for (const auto& parameter : model->parameters().all()) parameter.value.mutable_grad().reset();
    loss = model->logits(model->forward(rows, {.training = true, .random = random}).hidden_BTD).pow(2).mean();
    loss.backward();
  };
  work();
  const auto graph = device("cuda").capture(work);
  ASSERT_TRUE(graph);
  const auto captured = loss;
  const auto gradient = model->parameters().all()[2].value.grad();
  for (const int64_t number : {1, 2, 1}) {
    random.fill_(number);
    graph->replay();
    const auto replayed = gradient.clone(), replayed_loss = captured.detach().clone();
    work();
    EXPECT_LT(testing::relative_error(replayed_loss, loss), 1e-5);
    EXPECT_LT(testing::relative_error(replayed, model->parameters().all()[2].value.grad()), 1e-4);
  }
}

}  // namespace
}  // namespace tightloop
