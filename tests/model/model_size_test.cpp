// Sizes of the presets: counts that transformers, nanochat and MiniMind give for the same models.
#include "model/model_size.h"

#include <gtest/gtest.h>

#include <string>

namespace tightloop {
namespace {

ModelConfig preset(const std::string& name) {
  ModelConfig config;
  Config settings;
  settings.add_section("model", config, "");
  settings.set("model.preset", name);
  config.resolve(/*tokenizer_vocab=*/32768 * (name.starts_with("nanochat") ? 1 : 0), /*row_length=*/2048);
  return config;
}

TEST(ModelSize, PresetsHaveTheirParameters) {
  const auto total = [](const char* name) { return model_size(preset(name)).total; };
  EXPECT_EQ(total("gpt2-124m"), 124475904);
  EXPECT_EQ(total("llama3.2-1b"), 1235814400);
  EXPECT_EQ(total("qwen2.5-0.5b"), 494032768);
  EXPECT_EQ(total("qwen3-0.6b"), 596049920);
  EXPECT_EQ(total("minimind-64m"), 63912192);
  EXPECT_EQ(total("minimind-moe-198m"), 198416640);
  EXPECT_EQ(total("nanochat-d4"), 36700242);
  EXPECT_EQ(total("nanochat-d12"), 286261730);
  EXPECT_EQ(total("nanochat-d20"), 896533746);
}

TEST(ModelSize, FlopsAreThoseThatNanochatCounts) {
  EXPECT_EQ(model_size(preset("nanochat-d12")).matmul, 110100936);
  EXPECT_EQ(flops_per_token(preset("nanochat-d4"), 2048), 80216496);
  EXPECT_EQ(flops_per_token(preset("nanochat-d12"), 2048), 759696048);
  EXPECT_EQ(flops_per_token(preset("nanochat-d20"), 2048), 2886212784);
}

TEST(ModelSize, ATokenMeetsTheExpertsThatItVisits) {
  const auto config = preset("minimind-moe-198m");
  const auto size = model_size(config);
  EXPECT_EQ(size.total - size.active, 8 * 3 * (3 * 768 * 2432));
  EXPECT_LT(flops_per_token(config, 512), 6.0 * static_cast<double>(size.total));
}

}  // namespace
}  // namespace tightloop
