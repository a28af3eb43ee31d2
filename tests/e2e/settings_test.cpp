// What a setting asks for happens, or a sentence says why not.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace tightloop {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::run;
using testing::TempFolder;
using testing::tiny;

TEST(Settings, AWordFindsThoseThatAreAboutIt) {
  const TempFolder folder;
  const auto found = run(folder.path(), "tightloop config WARMUP");
  EXPECT_EQ(found.exit_code, 0) << found.output;
  EXPECT_TRUE(contains(found.output, "--train.warmup_steps ")) << found.output;
  EXPECT_FALSE(contains(found.output, "--data.train ")) << found.output;
  const auto about = run(folder.path(), "tightloop config 'at most'");
  EXPECT_TRUE(contains(about.output, "--train.memory_limit ")) << "by what their help says\n" << about.output;
  const auto none = run(folder.path(), "tightloop config dropuot");
  EXPECT_EQ(none.exit_code, 2) << none.output;
  EXPECT_TRUE(contains(none.output, "Did you mean 'model.dropout'?")) << none.output;
  const auto other = run(folder.path(), "tightloop config batch_size");
  EXPECT_TRUE(contains(other.output, "--train.micro_batch ")) << other.output;
  const auto section = run(folder.path(), "tightloop config trainn");
  EXPECT_TRUE(contains(section.output, "Did you mean 'train'?")) << section.output;
}

TEST(Settings, TheyAreListedBySection) {
  const TempFolder folder;
  const std::string config = "tightloop config '" TIGHTLOOP_SOURCE_DIR "/configs/quickstart.yaml' ";
  const auto yaml = run(folder.path(), config + "--section train --yaml > part.yaml && cat part.yaml");
  EXPECT_TRUE(yaml.output.starts_with("train:\n  ")) << yaml.output;
  EXPECT_FALSE(contains(yaml.output, "\nmodel:")) << yaml.output;
  EXPECT_EQ(run(folder.path(), "tightloop config part.yaml").exit_code, 0) << "it is a recipe";
  EXPECT_EQ(run(folder.path(), config + "--section trian --yaml").exit_code, 2);
  EXPECT_EQ(run(folder.path(), config + "--section train --markdown").exit_code, 2);
}

TEST(Settings, ACpuHasNoTf32) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(), "tightloop train " + tiny() + "--train.steps 1 --train.precision tf32");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "tf32 is for GPUs")) << outcome.output;
  EXPECT_FALSE(contains(outcome.output, "tf32 products")) << outcome.output;
}

// As on a CPU without AVX-512, where torch has no kernel for products in bf16.
TEST(Settings, ACpuThatIsSlowAtBf16ComputesInFp32AndSaysWhatBf16Costs) {
  const std::string slow = "export TIGHTLOOP_NO_CUDA=1 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2; ";
  const TempFolder folder;
  const auto in = [&](const std::string& command) { return run(folder.path(), slow + command); };
  const auto bench = in("tightloop bench step " + tiny() + "--train.precision auto --steps 3 --json");
  ASSERT_EQ(bench.exit_code, 0) << bench.output;
  const auto result = nlohmann::json::parse(bench.output.substr(bench.output.find('{')));
  EXPECT_EQ(result["precision"], "fp32");
  EXPECT_TRUE(result["mfu"].is_null() || result["mfu"].get<double>() <= 1) << result["mfu"];
  const auto asked =
      in("tightloop train " + tiny() + "--train.steps 1 --train.precision bf16 --run.name asked");
  EXPECT_EQ(asked.exit_code, 0) << asked.output;
  EXPECT_TRUE(contains(asked.output, "no products in bf16")) << asked.output;
  // A run that was trained in bf16 elsewhere.
  const auto used = in("tightloop eval --run runs/asked");
  EXPECT_FALSE(contains(used.output, "products in bf16")) << used.output;
}

TEST(Settings, AdaptersOfATranslatorAreRefusedBeforeAnythingIsMade) {
  const TempFolder folder;
  const auto outcome = run(
      folder.path(), "tightloop train '" TIGHTLOOP_SOURCE_DIR "/configs/translate-toy.yaml' --lora.rank 8");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "lora.rank")) << outcome.output;
  EXPECT_FALSE(fs::exists(folder / "runs"));
}

TEST(Settings, OneWithoutEffectIsNamed) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(), "tightloop train " + tiny() + "--train.steps 1 --train.muon_beta2 0.5");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "train.muon_beta2 has no effect here")) << outcome.output;
}

}  // namespace
}  // namespace tightloop
