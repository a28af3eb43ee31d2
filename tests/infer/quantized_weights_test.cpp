#include "model/quantized_weights.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "infer/generate.h"
#include "infer/model.h"
#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using ops::WeightFormat;

std::unique_ptr<LanguageModel> model_of(const std::string& family, bool tied, int64_t width = 64) {
  ModelConfig config;
  config.family = family, config.tie_embeddings = tied;
  config.layers = 2, config.width = width, config.heads = 4, config.context = 32, config.init_std = 0.1;
  config.resolve(96, 0);
  return make_model(config, 7);
}

at::Tensor logits_of(LanguageModel& model, int64_t T) {
  const at::NoGradGuard no_grad;
  return model.logits(model.forward(at::arange(T, at::kLong).view({1, T})).hidden_BTD);
}

TEST(QuantizedWeights, ModelsSayNearlyTheSame) {
  for (const auto* family : {"llama", "gpt2", "nanochat"})
    for (const bool tied : {false, true}) {
      if (std::string(family) == "nanochat" && tied) continue;
      for (const auto& [format, room] : {std::pair{WeightFormat::kInt8, 0.03}, {WeightFormat::kInt4, 0.4}}) {
        const auto model = model_of(family, tied);
        for (const int64_t T : {3, 20}) {  // few rows, and more
          const auto packed = model_of(family, tied);
          const at::Tensor embedding = packed->parameters().find("embedding")->value.detach().clone();
          const auto made = quantize_weights(*packed, format, at::kCPU);
          packed->parameters().to(at::kCPU, at::kFloat);  // leaves them as they are
          SCOPED_TRACE(::testing::Message()
                       << family << ' ' << name_of(format) << (tied ? " tied " : " ") << T);
          EXPECT_LT(made.bytes, made.elements * 2);
          EXPECT_GE(made.matrices, 9);  // four or more of each block, and the head
          EXPECT_TRUE(at::equal(packed->parameters().find("embedding")->value, embedding));
          EXPECT_TRUE(ops::is_quantized(packed->used_head().weight_VD));
          const double error = relative_error(logits_of(*packed, T), logits_of(*model, T));
          EXPECT_LT(error, room);
          EXPECT_GT(error, 1e-4) << "something is packed";
        }
      }
    }
}

TEST(QuantizedWeights, GenerateInTheSameWayInABatch) {
  const auto model = model_of("llama", true);
  quantize_weights(*model, WeightFormat::kInt8, at::kCPU);
  GenerateOptions options;
  options.sampling.temperature = 0, options.sampling.max_tokens = 12;
  const std::vector<Prompt> prompts{{{1, 2, 3}}, {{5, 6, 7}}, {{9, 10, 11}}};
  const auto together = generate(*model, prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ(generate(*model, {&prompts[i], 1}, options)[0].ids, together[i].ids);
}

TEST(QuantizedWeights, AreNotTrained) {
  const auto model = model_of("llama", false);
  quantize_weights(*model, WeightFormat::kInt4, at::kCPU);
  try {
    model->forward(at::arange(4, at::kLong).view({1, 4}));
    FAIL() << "gradients of packed weights";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("cannot be trained"), std::string::npos);
  }
}

TEST(QuantizedWeights, AModelWithNothingToPackIsRefused) {
  const auto model = model_of("gpt2", false, 36);
  EXPECT_THROW(quantize_weights(*model, WeightFormat::kInt8, at::kCPU), Error);
}

}  // namespace
}  // namespace tightloop::testing
