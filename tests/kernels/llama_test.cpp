// Models that decode on the CUDA kernels, as fibers: few tokens, whose norms and SwiGLU the products' kernel
// makes itself.
#include "model/families/llama/llama.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "ops/compare.h"

namespace tightloop {
namespace {

/// The states that the head reads, of a few tokens without gradients.
at::Tensor decoded(const std::string& family, at::ScalarType dtype, int64_t tokens) {
  const at::NoGradGuard no_grad;
  ModelConfig config;
  config.family = family;
  config.layers = 2, config.width = 64, config.heads = 2, config.kv_heads = 1, config.head_size = 32;
  config.ffn = 96, config.context = 16, config.vocab_size = 24, config.init_std = 0.2;
  if (config.has_experts()) config.experts = 4, config.experts_per_token = 2, config.expert_ffn = 48;
  config.resolve(0, 0);
  Llama model(config, 1);
  // Ones and zeros, as norms and biases start, would hide them.
  for (const auto& parameter : model.parameters().all())
    if (parameter.value.dim() == 1)
      parameter.value.add_(testing::random_tensor(parameter.value.sizes(), at::kFloat, 3, 0.2));
  model.parameters().to(at::kCPU, dtype);
  const auto ids =
      testing::random_tensor({1, tokens}, at::kDouble, 2, 1000).abs().to(at::kLong).remainder(24);
  return model.forward(ids).hidden_BTD;
}

TEST(FusedLlama, DecodesAsNearToFp32AsThePlainTwins) {
  for (const char* family : {"llama", "qwen2", "qwen3", "qwen3_moe"})
    for (const int64_t tokens : {1, 4}) {
      const auto fused = decoded(family, at::kBFloat16, tokens);
      const testing::PlainScope plain;
      const auto twins = decoded(family, at::kBFloat16, tokens), exact = decoded(family, at::kFloat, tokens);
      const auto distance = [&](const at::Tensor& got) {
        const auto wanted = exact.to(at::kDouble);
        return ((got.to(at::kDouble) - wanted).norm() / wanted.norm()).item<double>();
      };
      EXPECT_LT(distance(fused), 2 * distance(twins) + 0.01) << family << ", " << tokens << " tokens";
    }
}

}  // namespace
}  // namespace tightloop
