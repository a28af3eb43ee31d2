// A run that goes on in a new process comes to the bits of one that never stopped.
#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::run;
using testing::TempFolder;

/// Dropout, accumulation, experts, a mixture whose pass is longer than the run, adapters and a loss scale
/// that grows all the time: whatever has a state of its own.
void write_recipe(const TempFolder& folder) {
  for (const char* name : {"a", "b"}) {
    std::string text;
    for (int i = 0; i < 200; ++i)
      text += "Line " + std::to_string(i * 7919 % 1000) + " of the text " + name + ".\n\n";
    write_file_whole(folder / (std::string(name) + ".txt"), text);
  }
  write_file_whole(folder / "all.yaml", R"(
data: {seq_len: 32, rows: pack, holdout: 0.1, num_workers: 1, mixture: [
  "name=a source=text train=a.txt documents=blank_line weight=2",
  "name=b source=text train=b.txt documents=blank_line weight=1"]}
tokenizer: {vocab_size: 257}
model: {family: qwen3_moe, layers: 1, width: 32, heads: 2, ffn: 32, experts: 4, experts_per_token: 2, dropout: 0.1}
train: {device: cpu, threads: 1, precision: fp16, loss_scale_growth_steps: 3, steps: 40, micro_batch: 2, accumulate: 2,
        lr: 0.003, warmup_steps: 2, eval_steps: 0, save_steps: 0, logging_steps: 1}
)");
}

TEST(SameBits, OfAllThatHasAStateInANewProcess) {
  const TempFolder folder;
  write_recipe(folder);
  const std::string train = "tightloop train all.yaml --run.name ";
  const std::string adapters = " --train.init_from runs/base --lora.rank 2 --train.stop_at ";
  const auto trained = run(folder.path(), train + "base --train.steps 1 && " + train + "whole" + adapters +
                                              "13 && " + train + "part" + adapters +
                                              "5 && tightloop train --resume runs/part --train.stop_at 13");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  for (const char* name : {"model", "optimizer"}) {
    const auto file = [&](const char* of) {
      return read_file(folder / "runs" / of / "checkpoints/step-00000013" /
                       (std::string(name) + ".safetensors"));
    };
    EXPECT_TRUE(file("part") == file("whole")) << name;
  }
  // What was logged is the same, too, but for times.
  const auto losses = [&](const std::string& of) {
    return run(folder.path(), "grep -o '\"training/loss\":[^,}]*' runs/" + of + "/metrics.jsonl").output;
  };
  EXPECT_EQ(losses("part"), losses("whole"));
  EXPECT_TRUE(testing::contains(losses("part"), "training/loss"));
}

}  // namespace
}  // namespace tightloop
