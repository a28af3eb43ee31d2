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

// The recipes as they are, but for sizes that are quicker to compute, on samples of their files.
TEST(Stages, NanochatGoesFromBaseToSft) {
  const TempFolder folder;
  const std::string small =
      "--train.steps 20 --train.epochs 0 --train.device cpu --train.precision fp32 --data.seq_len 64 "
      "--train.micro_batch 4 --train.accumulate 1 --train.warmup_steps 2 --tasks.questions 400 "
      "--tasks.held_out 20 "
      "--train.logging_steps 5 ";
  std::string parent;
  for (const std::string stage : {"base", "sft"}) {
    const std::string recipe = "'" TIGHTLOOP_SOURCE_DIR "/configs/nanochat-" + stage + ".yaml' ";
    const auto sample = run(folder.path(), "tightloop data sample " + recipe + "--to .");
    ASSERT_EQ(sample.exit_code, 0) << sample.output;
    const auto outcome =
        run(folder.path(), "tightloop train " + recipe + small +
                               (stage == "base" ? "--model.depth 2 --tokenizer.vocab_size 400" : ""));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const auto here = folder / ("runs/nanochat-" + stage);
    const auto losses = losses_of(here);
    ASSERT_EQ(losses.size(), 4u);
    EXPECT_LT(losses.back(), losses.front()) << stage;
    const auto metadata = metadata_of(here);
    EXPECT_EQ(metadata.at("stage"), stage);
    if (stage != "base") {
      EXPECT_TRUE(contains(outcome.output, "Starting from " + parent)) << outcome.output;
      EXPECT_TRUE(contains(outcome.output, "The optimizer's moments are those of " + parent))
          << outcome.output;
      EXPECT_EQ(metadata.at("parent").at("path"), parent);
      EXPECT_EQ(metadata.at("parent").at("step"), 20);
    }
    parent = "runs/nanochat-" + stage;
  }
  const auto resumed = run(folder.path(), "tightloop train --resume runs/nanochat-sft --train.steps 22");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  const auto exported = run(folder.path(), "tightloop export --run runs/nanochat-sft --to out --dtype fp32");
  EXPECT_EQ(exported.exit_code, 0) << exported.output;
  const auto text = run(folder.path(),
                        "tightloop generate --run runs/nanochat-sft --prompt 'add' "
                        "--max-tokens 4 --temperature 0");
  EXPECT_EQ(text.exit_code, 0) << text.output;
  // A folder of Hugging Face has no moments to carry over.
  const auto foreign =
      run(folder.path(), "tightloop train '" TIGHTLOOP_SOURCE_DIR "/configs/nanochat-sft.yaml' " + small +
                             "--train.init_from out --run.name other");
  EXPECT_EQ(foreign.exit_code, 2) << foreign.output;
  EXPECT_TRUE(contains(foreign.output, "leave out train.init_optimizer")) << foreign.output;
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
