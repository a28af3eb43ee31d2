#include <gtest/gtest.h>

#include <algorithm>

#include "program.h"

namespace tightloop::testing {
namespace {

int64_t milliseconds(const Outcome& outcome) {
  const auto at = outcome.output.rfind("ms ");
  return at == std::string::npos ? -1 : std::stoll(outcome.output.substr(at + 3));
}

// What was begun under names that are not final.
std::string half_made(const fs::path& folder) {
  std::string found;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (contains(entry.path().filename().string(), ".partial")) found += entry.path().string() + "\n";
  return found;
}

class TrainSignal : public ::testing::TestWithParam<const char*> {};

TEST_P(TrainSignal, SavesAndStops) {
  const TempFolder folder;
  const auto outcome = run(folder.path(), signalled("train " + tiny() + "--train.steps 1000000 --run.name a",
                                                    "grep -q global_step runs/a/metrics.jsonl", GetParam()));
  EXPECT_EQ(outcome.exit_code, 130) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "tightloop train --resume runs/a")) << outcome.output;
  EXPECT_EQ(run(folder.path(), "tightloop eval --run runs/a").exit_code, 0);
}

INSTANTIATE_TEST_SUITE_P(All, TrainSignal, ::testing::Values("INT", "TERM", "HUP", "QUIT"),
                         [](const auto& info) { return std::string(info.param); });

// SIGUSR1 is no wish to end: a checkpoint, and training goes on.
TEST(Signals, Usr1SavesAndGoesOn) {
  const TempFolder folder;
  const std::string saved = "grep -q '\"event\":\"saved\"' runs/a/events.jsonl";
  const auto outcome = run(
      folder.path(), signalled("train " + tiny() +
                                   "--train.steps 1000000 --train.save_steps 0 --train.save_minutes 0 "
                                   "--train.eval_steps 0 --run.name a",
                               "grep -q global_step runs/a/metrics.jsonl",
                               "USR1 $child; until " + saved +
                                   "; do kill -0 $child || break; sleep 0.05; done; sleep 0.3; kill -TERM"));
  EXPECT_EQ(outcome.exit_code, 130) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "SIGUSR1: step ")) << outcome.output;
  const auto steps = run(folder.path(), "ls -d runs/a/checkpoints/step-*");
  EXPECT_EQ(std::ranges::count(steps.output, '\n'), 2) << "the one asked for, and the last\n" << steps.output;
}

TEST(Signals, Usr1DisturbsNoOtherVerb) {
  const TempFolder folder;
  ASSERT_EQ(run(folder.path(), "tightloop train " + tiny() + "--train.steps 4 --run.name a").exit_code, 0);
  write_text(folder.path() / "text.txt", 1 << 20);
  const auto eval = run(folder.path(), signalled("eval --run runs/a --input text.txt", "sleep 0.1", "USR1"));
  EXPECT_EQ(eval.exit_code, 0) << eval.output;
}

TEST(Signals, NohupIsRespected) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(), "trap '' HUP; " + signalled("train " + tiny() + "--train.steps 60 --run.name a",
                                                     "grep -q global_step runs/a/metrics.jsonl", "HUP"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST(Signals, ASignalSentTwiceAtOnceStillSaves) {
  const TempFolder folder;
  const auto outcome = run(folder.path(), signalled("train " + tiny() + "--train.steps 1000000 --run.name a",
                                                    "grep -q global_step runs/a/metrics.jsonl",
                                                    "TERM $child; sleep 0.05; kill -TERM"));
  EXPECT_EQ(outcome.exit_code, 130) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "everything is saved")) << outcome.output;
}

TEST(Signals, TrainGoesOnWhenNobodyReadsItsOutput) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(), "(tightloop train " + tiny() +
                             "--train.steps 60 --run.name a 2>&1; echo $? > code) | head -n 1; cat code");
  EXPECT_TRUE(contains(outcome.output, "\n0\n")) << outcome.output;
  EXPECT_TRUE(fs::exists(folder.path() / "runs/a/checkpoints/step-00000060")) << outcome.output;
}

TEST(Signals, TheLimitOnFileSizesIsASentence) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(), "ulimit -f 64; tightloop train " + tiny() + "--train.steps 4 --run.name a");
  EXPECT_EQ(outcome.exit_code, 4) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "File too large")) << outcome.output;
}

TEST(Signals, EveryPhaseBeforeTheFirstStepReacts) {
  const TempFolder folder;
  write_text(folder.path() / "big.txt", 32 << 20);
  const std::string recipe = "'" TIGHTLOOP_SOURCE_DIR
                             "/configs/text.yaml' --data.train big.txt --train.device cpu --model.layers 1 "
                             "--model.width 32 --model.heads 2 --data.tokenizer_threads 1 ";
  const std::string trained = "--tokenizer.vocab_size 3000 ", bytes = "--tokenizer.vocab_size 257 ";
  const std::vector<std::string> commands{
      "tokenizer train big.txt --vocab-size 9000 --threads 1 --output tok",
      "tokenizer train big.txt --type unigram --vocab-size 9000 --threads 1 --output tok",
      "train " + recipe + trained + "--run.name a",
      "train " + recipe + bytes + "--run.name b",
      "train " + recipe + bytes + "--data.tokenize live --run.name c",
      "prepare " + recipe + bytes + "--output shards",
      "data check " + recipe + bytes};
  for (const std::string& command : commands) {
    // About a second on a machine that is not busy.
    for (const bool late : {false, true}) {
      const auto outcome = run(folder.path(), signalled(command, late ? "sleep 0.5" : "sleep 0.1", "INT"));
      const bool done = late && outcome.exit_code == 0;  // what was nearly done may be finished
      EXPECT_TRUE(done || outcome.exit_code == 130) << command << "\n" << outcome.output;
      EXPECT_LT(milliseconds(outcome), 4000) << command << "\n" << outcome.output;
      EXPECT_EQ(half_made(folder.path()), "") << command;
    }
  }
}

TEST(Signals, EvalReacts) {
  const TempFolder folder;
  write_text(folder.path() / "big.txt", 4 << 20);
  ASSERT_EQ(run(folder.path(), "tightloop train " + tiny() + "--train.steps 4 --run.name a").exit_code, 0);
  const auto eval = run(folder.path(), signalled("eval --run runs/a --input big.txt", "sleep 0.6", "INT"));
  EXPECT_EQ(eval.exit_code, 130) << eval.output;
  EXPECT_LT(milliseconds(eval), 4000) << eval.output;
}

TEST(Signals, CtrlCSaysWhatComesNext) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(), signalled("train " + slow_steps() + "--run.name a", in_a_step("a"), "INT"));
  EXPECT_EQ(outcome.exit_code, 130) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "then saving; Ctrl-C again stops at once without saving."))
      << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "everything is saved")) << outcome.output;
}

TEST(Signals, CtrlCAgainStopsWithoutSaving) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(), signalled("train " + slow_steps() + "--train.accumulate 50 --run.name a",
                                   in_a_step("a"), "INT $child; sleep 0.8; kill -INT"));
  EXPECT_EQ(outcome.exit_code, 130) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "Finishing step 1, then saving; Ctrl-C again")) << outcome.output;
  EXPECT_FALSE(contains(outcome.output, "everything is saved")) << outcome.output;
  EXPECT_TRUE(fs::is_empty(folder / "runs/a/checkpoints"));
}

TEST(Signals, PrepareSaysWhatIsKept) {
  const TempFolder folder;
  write_text(folder.path() / "big.txt", 24 << 20);
  const std::string command = "prepare '" TIGHTLOOP_SOURCE_DIR
                              "/configs/text.yaml' --data.train big.txt --tokenizer.vocab_size 257 "
                              "--data.tokenizer_threads 1 --output ";
  const auto early = run(folder.path(), signalled(command + "a", "ls a/*.partial-*", "INT"));
  EXPECT_EQ(early.exit_code, 130) << early.output;
  EXPECT_TRUE(contains(early.output,
                       "No shard in 'a' was finished yet: the same command starts it from the "
                       "beginning."))
      << early.output;
  EXPECT_EQ(half_made(folder.path()), "");
  const auto later =
      run(folder.path(), signalled(command + "b --shard-tokens 500000", "[ -e b/train-00001.shard ]", "INT"));
  EXPECT_EQ(later.exit_code, 130) << later.output;
  EXPECT_TRUE(contains(later.output, "in 'b' are kept: the same command goes on after them."))
      << later.output;
  EXPECT_EQ(half_made(folder.path()), "");
}

}  // namespace
}  // namespace tightloop::testing
