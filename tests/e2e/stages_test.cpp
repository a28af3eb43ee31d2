#include <fstream>
#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::contains;
using testing::run;
using testing::TempFolder;

nlohmann::json metadata_of(const fs::path& run_folder) {
  return nlohmann::json::parse(read_file(run_folder / "checkpoints/step-00000020/state.json")).at("metadata");
}

std::vector<double> losses_of(const fs::path& run_folder) {
  std::vector<double> losses;
  std::ifstream in(run_folder / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("training/loss")) losses.push_back(json["training/loss"]);
  }
  return losses;
}

// The recipes as they are, but for rows that are quicker to compute.
TEST(Stages, NanochatGoesFromBaseToMidToSft) {
  const TempFolder folder;
  std::string parent;
  for (const std::string stage : {"base", "mid", "sft"}) {
    const auto outcome =
        run(folder.path(), "tightloop train '" TIGHTLOOP_SOURCE_DIR "/configs/nanochat-d4-" + stage +
                               ".yaml' --train.steps 20 --train.device cpu --train.precision "
                               "fp32 --data.seq_len 64 --tasks.questions 2000 "
                               "--tasks.held_out 20 --train.logging_steps 5");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const auto here = folder / ("runs/nanochat-d4-" + stage);
    const auto losses = losses_of(here);
    ASSERT_EQ(losses.size(), 4u);
    EXPECT_LT(losses.back(), losses.front()) << stage;
    const auto metadata = metadata_of(here);
    EXPECT_EQ(metadata.at("stage"), stage);
    if (stage != "base") {
      EXPECT_TRUE(contains(outcome.output, "Starting from " + parent)) << outcome.output;
      EXPECT_EQ(metadata.at("parent").at("path"), parent);
      EXPECT_EQ(metadata.at("parent").at("step"), 20);
    }
    parent = "runs/nanochat-d4-" + stage;
  }
  const auto resumed = run(folder.path(), "tightloop train --resume runs/nanochat-d4-sft --train.steps 22");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  const auto exported =
      run(folder.path(), "tightloop export --run runs/nanochat-d4-sft --to out --dtype fp32");
  EXPECT_EQ(exported.exit_code, 0) << exported.output;
  const auto text = run(folder.path(),
                        "tightloop generate --run runs/nanochat-d4-sft --prompt 'add' "
                        "--max-tokens 4 --temperature 0");
  EXPECT_EQ(text.exit_code, 0) << text.output;
}

TEST(ExportVerb, RefusesWhatIsNoModelAndWhatWouldBeOverwritten) {
  const TempFolder folder;
  const auto none = run(folder.path(), "tightloop export --run nothing --to out");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_TRUE(contains(none.output, "Hugging Face")) << none.output;
  EXPECT_FALSE(fs::exists(folder / "out"));
  EXPECT_EQ(
      run(folder.path(), "mkdir out && touch out/x && tightloop export --run nothing --to out").exit_code, 2);
}

}  // namespace
}  // namespace tightloop
