#include <gtest/gtest.h>

#include <fstream>

#include "program.h"

namespace tightloop::testing {
namespace {

// Waits (20 s at most) until the command has its handlers and `ready` succeeds, sends it a signal and gives
// its exit code; "ms N" in the output says how long it took to end.
std::string signalled(const std::string& command, const std::string& ready, const std::string& signal) {
  return "'" TIGHTLOOP_BINARY_DIR "/tightloop' " + command +
         " & child=$!; until [ $((0x0$(sed -n 's/SigCgt:[^0-9a-f]*//p' /proc/$child/status) & 0x4000)) -ne 0 "
         "]; "
         "do sleep 0.02; done; for i in $(seq 400); do { " +
         ready + "; } 2>/dev/null && break; sleep 0.05; done; began=$(date +%s%N); kill -" + signal +
         " $child; wait $child; code=$?; echo ms $(( ($(date +%s%N) - began) / 1000000 )); exit $code";
}

int64_t milliseconds(const Outcome& outcome) {
  const auto at = outcome.output.rfind("ms ");
  return at == std::string::npos ? -1 : std::stoll(outcome.output.substr(at + 3));
}

void write_text(const fs::path& file, size_t bytes) {
  std::ofstream out(file, std::ios::binary);
  uint32_t state = 1;
  for (size_t written = 0; written < bytes;) {
    std::string word;
    for (uint32_t i = 0, letters = 2 + (state >> 24) % 9; i < letters; ++i) {
      state = state * 1664525 + 1013904223;
      word += static_cast<char>('a' + (state >> 16) % 26);
    }
    word += (state >> 28) == 0 ? "\n\n" : " ";
    out << word;
    written += word.size();
  }
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

INSTANTIATE_TEST_SUITE_P(All, TrainSignal, ::testing::Values("INT", "TERM", "HUP", "USR1", "QUIT"),
                         [](const auto& info) { return std::string(info.param); });

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
    for (const char* wait : {"sleep 0.1", "sleep 0.5"}) {
      const auto outcome = run(folder.path(), signalled(command, wait, "TERM"));
      EXPECT_EQ(outcome.exit_code, 130) << command << "\n" << outcome.output;
      EXPECT_LT(milliseconds(outcome), 4000) << command << "\n" << outcome.output;
    }
  }
}

}  // namespace
}  // namespace tightloop::testing
