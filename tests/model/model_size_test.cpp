// Sizes of the presets: counts that transformers, nanochat and MiniMind give for the same models.
#include "model/model_size.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "model/model.h"

namespace tightloop {
namespace {

/// Presets without a vocabulary of their own get the one given.
ModelConfig preset(const std::string& name, int64_t vocabulary = 32768, int64_t row_length = 2048) {
  ModelConfig config;
  Config settings;
  settings.add_section("model", config, "");
  settings.set("model.preset", name);
  config.resolve(config.vocab_size == 0 ? vocabulary : 0, row_length);
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

// What the formulas of each family gave, before sizes were read from the shapes of the parameters.
TEST(ModelSize, AllPresetsHaveTheSizesOfTheFormulas) {
  struct Known {
    const char* preset;
    int64_t total, embedding, active, matmul;
    double flops;
  };
  const std::vector<Known> all{
      {"gpt2-124m", 124475904, 39419904, 124475904, 123568128, 854654976},
      {"llama3.2-1b", 1235814400, 262668288, 1235814400, 1235746816, 7515144192},
      {"qwen2.5-0.5b", 494032768, 136134656, 494032768, 493961216, 3029827584},
      {"qwen3-0.6b", 596049920, 155582464, 596049920, 595984384, 3752067072},
      {"minimind-64m", 63912192, 4915200, 63912192, 63897600, 402259968},
      {"minimind-moe-198m", 198416640, 4915200, 63936768, 63922176, 402407424},
      {"nanochat-d4", 36700242, 25165824, 36700242, 11534408, 71172528},
      {"nanochat-d12", 286261730, 176160768, 286261730, 110100936, 678300336},
      {"nanochat-d20", 896533746, 461373440, 896533746, 435160264, 2660113584},
      {"translate-tiny", 13919232, 8388608, 13919232, 13893632, 90439680},
      {"translate-base", 60917760, 16777216, 60917760, 60817408, 393216000},
  };
  ASSERT_EQ(all.size(), model_presets().size());
  for (const auto& known : all) {
    SCOPED_TRACE(known.preset);
    auto config = preset(known.preset, /*vocabulary=*/32768, /*row_length=*/256);
    const auto size = model_size(config);
    EXPECT_EQ(size.total, known.total);
    EXPECT_EQ(size.embedding, known.embedding);
    EXPECT_EQ(size.active, known.active);
    EXPECT_EQ(size.matmul, known.matmul);
    EXPECT_EQ(flops_per_token(config, config.context), known.flops);
  }
}

TEST(ModelSize, ABillionParametersAreCountedWithoutMemory) {
  const auto config = preset("llama3.2-1b");
  const auto model = make_shapes(config);
  for (const auto& parameter : model->parameters().all())
    EXPECT_TRUE(parameter.value.is_meta()) << parameter.name;
  EXPECT_EQ(model->parameters().count(), 1235814400);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) model_size(config);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  RecordProperty("milliseconds", std::to_string(taken.count() * 1000 / 20));
  EXPECT_LT(taken.count() / 20, 0.05);  // 0.06 ms where nothing else runs
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
