#include "model/parts/lora.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include "model/language_model.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;

double relative(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

LoraConfig rank(int64_t rank, std::vector<std::string> layers) {
  LoraConfig config;
  config.rank = rank, config.alpha = 6, config.layers = std::move(layers);
  return config;
}

ModelConfig small_lora_model() {
  ModelConfig config;
  config.layers = 2, config.width = 32, config.heads = 4, config.init_std = 0.2;
  config.resolve(50, 64);
  return config;
}

void fill_b(Parameters& parameters) {
  c10::NoGradGuard no_grad;
  for (const auto& parameter : parameters.all())
    if (parameter.name.ends_with(".lora_b"))
      parameter.value.detach().copy_(at::randn(parameter.value.sizes()) * 0.1);
}

at::Tensor logits_of(LanguageModel& model) {
  const auto ids = at::tensor(std::vector<int64_t>{1, 2, 3, 4, 5}).unsqueeze(0);
  return model.logits(model.forward(ids).hidden_BTD);
}

TEST(Lora, GradientsAreThoseOfTheFormula) {
  Parameters parameters(3);
  const at::Tensor handle =
      parameters.add("blocks.0.qkv", {6, 5}, {Init::kNormal, 1.0}, ParameterRole::kMatrix);
  const at::Tensor weight = handle.detach().clone();
  Adapters adapters(parameters, rank(3, {"blocks.*.qkv"}), 1);
  fill_b(adapters.parameters());
  const auto x = at::randn({4, 5}), g = at::randn({4, 6});
  for (int pass = 0; pass < 2; ++pass) {  // the graph of a pass is gone when the next one starts
    adapters.refresh();
    (at::linear(x, handle) * g).sum().backward();
  }
  const auto& a = adapters.parameters().find("blocks.0.qkv.lora_a")->value;
  const auto& b = adapters.parameters().find("blocks.0.qkv.lora_b")->value;
  const double scale = 6.0 / 3;
  const auto A = a.detach(), B = b.detach();
  EXPECT_LT(
      relative(at::linear(x, handle).detach(), x.matmul(weight.t()) + scale * x.matmul(A.t()).matmul(B.t())),
      1e-6);
  EXPECT_LT(relative(a.grad(), 2 * scale * B.t().matmul(g.t()).matmul(x)), 1e-6);
  EXPECT_LT(relative(b.grad(), 2 * scale * g.t().matmul(x).matmul(A.t())), 1e-6);
}

TEST(Lora, StacksOfMatricesGetAnAdapterEach) {
  Parameters parameters(3);
  const at::Tensor handle =
      parameters.add("experts", {4, 6, 5}, {Init::kNormal, 1.0}, ParameterRole::kMatrix);
  const at::Tensor weight = handle.detach().clone();
  Adapters adapters(parameters, rank(2, {"experts"}), 1);
  fill_b(adapters.parameters());
  adapters.refresh();
  const auto A = adapters.parameters().find("experts.lora_a")->value.detach(),
             B = adapters.parameters().find("experts.lora_b")->value.detach();
  EXPECT_EQ(A.sizes().vec(), (std::vector<int64_t>{4, 2, 5}));
  EXPECT_EQ(B.sizes().vec(), (std::vector<int64_t>{4, 6, 2}));
  for (int e = 0; e < 4; ++e)
    EXPECT_LT(relative(handle[e].detach(), weight[e] + 3 * B[e].matmul(A[e])), 1e-6);
}

TEST(Lora, AModelStartsUnchangedAndOnlyAdaptersTrain) {
  auto model = make_model(small_lora_model(), 1);
  const auto before = logits_of(*model).detach();
  Adapters adapters(model->parameters(), rank(4, {"blocks.*.qkv", "blocks.1.down"}), 1);
  EXPECT_TRUE(at::equal(logits_of(*model), before));
  adapters.refresh();
  EXPECT_TRUE(at::equal(logits_of(*model), before));
  EXPECT_EQ(adapters.parameters().all().size(), 6u);
  logits_of(*model).pow(2).sum().backward();
  for (const auto& parameter : adapters.parameters().all()) {
    ASSERT_TRUE(parameter.value.grad().defined()) << parameter.name;
    // B starts at zero, so A learns from the second step on.
    if (parameter.name.ends_with("lora_b")) {
      EXPECT_GT(parameter.value.grad().abs().max().item<double>(), 0) << parameter.name;
    }
  }
  for (const auto& parameter : model->parameters().all())
    EXPECT_FALSE(parameter.value.is_leaf() && parameter.value.requires_grad()) << parameter.name;
}

TEST(Lora, MergedWeightsGiveTheSameLogits) {
  auto model = make_model(small_lora_model(), 1);
  const auto config = rank(4, {"blocks.*"});
  Adapters adapters(model->parameters(), config, 1);
  fill_b(adapters.parameters());
  c10::NoGradGuard no_grad;
  const auto before = logits_of(*model);
  adapters.refresh();
  const auto adapted = logits_of(*model);
  EXPECT_GT(relative(adapted, before), 1e-2);

  Safetensors saved;
  for (const auto& [name, weight] : adapters.frozen()) saved.tensors[name] = weight;
  for (const auto& parameter : adapters.parameters().all()) saved.tensors[parameter.name] = parameter.value;
  merge_adapters(saved, config);
  auto merged = make_model(small_lora_model(), 2);
  ASSERT_EQ(saved.tensors.size(), merged->parameters().all().size());
  for (const auto& parameter : merged->parameters().all())
    parameter.value.detach().copy_(saved.tensors.at(parameter.name));
  EXPECT_LT(relative(logits_of(*merged), adapted), 1e-6);
}

TEST(Lora, FrozenWeightsStayExactWhenTheModelComputesInBf16) {
  auto model = make_model(small_lora_model(), 1);
  const auto qkv = model->parameters().find("blocks.0.qkv")->value.detach().clone();
  Adapters adapters(model->parameters(), rank(4, {"blocks.0.qkv"}), 1);
  adapters.parameters().to(at::kCPU, at::kBFloat16);
  model->parameters().to(at::kCPU, at::kBFloat16);
  adapters.refresh();
  EXPECT_EQ(logits_of(*model).scalar_type(), at::kBFloat16);
  for (const auto& [name, weight] : adapters.frozen()) {
    EXPECT_EQ(weight.scalar_type(), at::kFloat) << name;
    if (name == "blocks.0.qkv") {
      EXPECT_TRUE(at::equal(weight, qkv));
    }
  }
}

TEST(Lora, APatternWithoutAMatrixIsRefused) {
  auto model = make_model(small_lora_model(), 1);
  for (const std::string wrong : {"blocks.*.qvk", "final_norm"}) {
    const auto message = error_of(ExitCode::kUsage, [&] {
      Adapters(model->parameters(), rank(4, {"blocks.*.qkv", wrong}), 1);
    });
    EXPECT_NE(message.find(wrong), std::string::npos) << message;
    EXPECT_NE(message.find("blocks.0.qkv"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace tightloop
