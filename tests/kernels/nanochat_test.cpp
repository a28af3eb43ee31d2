// A whole nanochat on the CUDA kernels, as fibers, against the plain twins: where blocks hand their sums and
// x0 on, a gradient that went nowhere would show.
#include "model/families/nanochat/nanochat.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "ops/compare.h"

namespace tightloop {
namespace {

/// The states that the head reads, then all gradients.
std::vector<at::Tensor> run_nanochat(at::ScalarType dtype, const std::string& checkpointing) {
  ModelConfig config;
  config.family = "nanochat";
  config.layers = 4, config.width = 64, config.heads = 2, config.kv_heads = 2, config.head_size = 32;
  config.ffn = 256, config.context = 16, config.vocab_size = 24,
  config.gradient_checkpointing = checkpointing;
  config.resolve(0, 0);
  Nanochat model(config, 1);
  // Zeros, as some start, would hide what is behind them.
  for (const auto& parameter : model.parameters().all())
    parameter.value.detach().add_(testing::random_tensor(parameter.value.sizes(), at::kFloat, 3, 0.1));
  model.parameters().to(at::kCPU, dtype);
  const auto ids = testing::random_tensor({3, 16}, at::kDouble, 2, 1000).abs().to(at::kLong).remainder(24);
  const auto hidden = model.forward(ids, Pass{.training = true}).hidden_BTD;
  (hidden.to(at::kFloat) * testing::random_tensor(hidden.sizes(), at::kFloat, 5)).sum().backward();
  std::vector<at::Tensor> all{hidden.detach()};
  for (const auto& parameter : model.parameters().all())
    if (parameter.name != "head") all.push_back(parameter.value.grad());
  return all;
}

TEST(FusedNanochat, HasTheGradientsOfItsTwins) {
  for (const char* checkpointing : {"none", "all"}) {
    const auto fused = run_nanochat(at::kFloat, checkpointing);
    const testing::PlainScope plain;
    const auto twins = run_nanochat(at::kFloat, checkpointing);
    for (size_t i = 0; i < fused.size(); ++i)
      EXPECT_LT(testing::relative_error(fused[i], twins[i]), 2e-5)
          << "tensor " << i << ' ' << twins[i].sizes();
  }
}

// In bf16 both are some percent away from fp32.
TEST(FusedNanochat, IsAsNearToFp32AsThePlainTwinsAre) {
  const auto fused = run_nanochat(at::kBFloat16, "none");
  const testing::PlainScope plain;
  const auto twins = run_nanochat(at::kBFloat16, "none"), exact = run_nanochat(at::kFloat, "none");
  for (size_t i = 0; i < fused.size(); ++i) {
    const auto distance = [&](const at::Tensor& got) {
      const auto wanted = exact[i].to(at::kDouble);
      return ((got.to(at::kDouble) - wanted).norm() / wanted.norm()).item<double>();
    };
    EXPECT_LT(distance(fused[i]), 2 * distance(twins[i]) + 0.02) << "tensor " << i << ' ' << exact[i].sizes();
  }
}

}  // namespace
}  // namespace tightloop
