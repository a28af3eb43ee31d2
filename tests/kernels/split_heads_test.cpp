// Whole language models on the CUDA kernel, as fibers, against the plain twins.
#include <ATen/TensorOperators.h>

#include "model/model_of.h"

namespace tightloop {
namespace {

using testing::model_of;
using testing::random_tensor;

ModelConfig config_of(const std::string& family, const std::string& checkpointing) {
  ModelConfig config;
  config.family = family, config.layers = 3, config.width = 64, config.heads = 4, config.kv_heads = 2;
  config.vocab_size = 24, config.context = 16, config.gradient_checkpointing = checkpointing;
  config.resolve(0, 0);
  return config;
}

at::Tensor ids(int64_t rows, int64_t length) {
  return random_tensor({rows, length}, at::kDouble, 5, 1000).abs().to(at::kLong).remainder(24);
}

/// The states that the head reads, then all gradients.
std::vector<at::Tensor> run(const ModelConfig& config) {
  const auto model = model_of(config);
  const auto hidden = model->forward(ids(3, 7), {.training = true}).hidden_BTD;
  (model->logits(hidden) * random_tensor({3, 7, 24}, at::kFloat, 99)).sum().backward();
  std::vector<at::Tensor> all{hidden.detach()};
  for (const auto& parameter : model->parameters().all()) all.push_back(parameter.value.grad());
  return all;
}

class SplitHeadsIn : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Each, SplitHeadsIn, ::testing::Values("llama", "qwen3", "nanochat"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(SplitHeadsIn, AgreesWithThePlainTwins) {
  for (const char* checkpointing : {"none", "all"}) {
    const auto config = config_of(GetParam(), checkpointing);
    const auto fused = run(config);
    const testing::PlainScope plain;
    const auto twins = run(config);
    ASSERT_EQ(fused.size(), twins.size());
    for (size_t i = 0; i < fused.size(); ++i)
      EXPECT_LT(testing::relative_error(fused[i], twins[i]), 2e-5)
          << "tensor " << i << ' ' << fused[i].sizes();
  }
}

TEST_P(SplitHeadsIn, ContinuesWhatACacheHolds) {
  const auto config = config_of(GetParam(), "none");
  const auto model = model_of(config);
  const auto row = ids(1, 9), whole = model->forward(row).hidden_BTD;
  KvCache cache(config.layers);
  model->forward(row.slice(1, 0, 6), {.cache = &cache});
  const auto rest = model->forward(row.slice(1, 6), {.cache = &cache}).hidden_BTD;
  EXPECT_LT(testing::relative_error(rest, whole.slice(1, 6)), 2e-5);
}

}  // namespace
}  // namespace tightloop
