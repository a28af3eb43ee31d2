#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::contains;
using testing::run;
using testing::TempFolder;
using testing::tiny;

const std::string kWeights = "/checkpoints/step-00000040/model.safetensors";

TEST(TrainVerb, ResumingInANewProcessGivesTheSameBits) {
  const TempFolder folder;
  ASSERT_EQ(run(folder.path(), "tightloop train " + tiny() + "--train.steps 40 --run.name whole").exit_code,
            0);
  const auto half =
      run(folder.path(), "tightloop train " + tiny() + "--train.steps 40 --train.stop_at 20 --run.name half");
  ASSERT_EQ(half.exit_code, 0) << half.output;
  EXPECT_TRUE(contains(half.output, "tightloop train --resume runs/half")) << half.output;
  const auto rest = run(folder.path(), "tightloop train --resume runs/half --train.stop_at 0");
  ASSERT_EQ(rest.exit_code, 0) << rest.output;
  EXPECT_TRUE(contains(rest.output, "after step 20")) << rest.output;
  EXPECT_EQ(read_file(folder / ("runs/whole" + kWeights)), read_file(folder / ("runs/half" + kWeights)));
}

TEST(TrainVerb, SaysTheEffectiveBatch) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(), "tightloop train " + tiny() + "--train.steps 2 --train.accumulate 3");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_TRUE(contains(outcome.output, "8 rows x 3 accumulated x 1 process = 24 rows")) << outcome.output;
}

TEST(TrainVerb, SaysOnceWhoComputesAttention) {
  const TempFolder folder;
  const auto outcome = run(folder.path(), "tightloop train " + tiny() + "--train.steps 3 --run.name a");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const std::string log = read_file(folder / "runs/a/log.txt"), line = "Attention: causal by ";
  ASSERT_TRUE(contains(log, line)) << log;
  EXPECT_EQ(log.find(line), log.rfind(line)) << log;
}

TEST(TrainVerb, AMisspelledSettingIsSuggested) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(), "tightloop train '" TIGHTLOOP_SOURCE_DIR "/configs/quickstart.yaml' --train.lrr 1");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(contains(outcome.output, "'train.lr'")) << outcome.output;
  EXPECT_FALSE(fs::exists(folder / "runs")) << "nothing is left behind";
}

TEST(TrainVerb, AMissingDataFileIsNamed) {
  const TempFolder folder;
  const auto outcome = run(
      folder.path(), "tightloop train '" TIGHTLOOP_SOURCE_DIR "/configs/text.yaml' --data.train no/such.txt");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_TRUE(contains(outcome.output, "no/such.txt")) << outcome.output;
  EXPECT_FALSE(fs::exists(folder / "runs/text")) << "a second try needs no --overwrite";
}

TEST(TrainVerb, ATruncatedCheckpointIsNamed) {
  const TempFolder folder;
  ASSERT_EQ(
      run(folder.path(), "tightloop train " + tiny() + "--train.steps 40 --train.stop_at 2 --run.name a")
          .exit_code,
      0);
  run(folder.path(), "truncate -s 1000 runs/a/checkpoints/step-00000002/model.safetensors");
  for (const char* verb : {"tightloop train --resume runs/a", "tightloop generate --run runs/a --prompt x",
                           "tightloop eval --run runs/a"}) {
    const auto outcome = run(folder.path(), verb);
    EXPECT_EQ(outcome.exit_code, 4) << verb;
    EXPECT_TRUE(contains(outcome.output, "step-00000002/model.safetensors")) << outcome.output;
  }
}

TEST(TrainVerb, AFullDiskLeavesTheOlderCheckpointLoadable) {
  const TempFolder folder;
  const auto mounted = run(folder.path(), "mkdir runs && mount -t tmpfs -o size=600k tmpfs runs");
  if (mounted.exit_code != 0) GTEST_SKIP() << "cannot mount a small tmpfs: " << mounted.output;
  const auto outcome =
      run(folder.path(), "tightloop train " + tiny() + "--train.steps 6 --train.save_steps 2 --run.name a");
  EXPECT_EQ(outcome.exit_code, 4) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "too little space")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "tightloop train --resume runs/a")) << outcome.output;
  const auto eval = run(folder.path(), "tightloop eval --run runs/a --json");
  EXPECT_EQ(eval.exit_code, 0) << eval.output;
  run(folder.path(), "umount runs");
}

TEST(TrainVerb, CtrlCSavesAndSaysHowToGoOn) {
  const TempFolder folder;
  const auto outcome = run(folder.path(), "'" TIGHTLOOP_BINARY_DIR "/tightloop' train " + tiny() +
                                              "--train.steps 1000000 --run.name a & child=$!; "
                                              "for i in $(seq 100); do grep -q global_step "
                                              "runs/a/metrics.jsonl 2>/dev/null && break; sleep 0.1; done; "
                                              "kill -INT $child; wait $child");
  EXPECT_EQ(outcome.exit_code, 130) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "tightloop train --resume runs/a")) << outcome.output;
  EXPECT_EQ(run(folder.path(), "tightloop eval --run runs/a").exit_code, 0);
}

TEST(TrainVerb, ARunIsNotOverwritten) {
  const TempFolder folder;
  const std::string command = "tightloop train " + tiny() + "--train.steps 2 --run.name a";
  ASSERT_EQ(run(folder.path(), command).exit_code, 0);
  const auto again = run(folder.path(), command);
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_TRUE(contains(again.output, "--overwrite")) << again.output;
  EXPECT_EQ(run(folder.path(), command + " --overwrite").exit_code, 0);
}

TEST(TrainVerb, OneOfRecipeAndResumeIsNeeded) {
  const TempFolder folder;
  EXPECT_EQ(run(folder.path(), "tightloop train").exit_code, 2);
  EXPECT_EQ(run(folder.path(), "tightloop train no.yaml").exit_code, 2);
  EXPECT_EQ(run(folder.path(), "tightloop train --resume no").exit_code, 2);
}

TEST(TrainVerb, OwnTextWithATokenizerOfItsOwn) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "Document number " + std::to_string(i * 7919 % 1000) + " says that the cat sat on the mat.\n\n";
  write_file_whole(folder / "mine.txt", text);
  const auto outcome = run(folder.path(), "tightloop train '" TIGHTLOOP_SOURCE_DIR
                                          "/configs/text.yaml' --data.train mine.txt --run.name mine "
                                          "--train.device cpu --train.steps 30 --train.eval_steps 0 "
                                          "--tokenizer.vocab_size 300 --data.seq_len 32 --model.width 32 "
                                          "--model.heads 2 --model.layers 1 --train.micro_batch 8");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "held-out loss")) << outcome.output;
  const auto text_out =
      run(folder.path(), "tightloop generate --run runs/mine --prompt 'Document' --max-tokens 8");
  EXPECT_EQ(text_out.exit_code, 0);
  EXPECT_TRUE(text_out.output.starts_with("Document")) << text_out.output;
}

}  // namespace
}  // namespace tightloop
