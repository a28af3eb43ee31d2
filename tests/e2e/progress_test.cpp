#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace tightloop::testing {
namespace {

constexpr const char* kOften = "export TIGHTLOOP_PROGRESS_SECONDS=0.05; ";

std::string own_text(const std::string& file) {
  return "'" TIGHTLOOP_SOURCE_DIR "/configs/text.yaml' --data.train " + file +
         " --train.device cpu --model.layers 1 --model.width 32 --model.heads 2 --data.tokenizer_threads 1 "
         "--tokenizer.vocab_size 257 ";
}

TEST(ProgressLines, ASlowRunSpeaksBeforeItsFirstLine) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(), kOften + ("tightloop train " + slow_steps() + "--train.stop_at 2 --run.name a"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "step    1/1000  first step, ")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, " so far")) << outcome.output;
}

// What a run keeps of itself does not depend on what is shown of it.
TEST(ProgressLines, MetricsDoNotDependOnThem) {
  const TempFolder folder;
  const auto steps_of = [&](const std::string& name, const std::string& before) {
    const auto outcome =
        run(folder.path(), before + "tightloop train " + tiny() + "--train.steps 20 --run.name " + name);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    std::ifstream file(folder.path() / "runs" / name / "metrics.jsonl");
    std::string found;
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line);
      found +=
          json.at("global_step").dump() + " " + json.value("training/loss", nlohmann::json()).dump() + "\n";
    }
    return found;
  };
  EXPECT_EQ(steps_of("a", "export TIGHTLOOP_PROGRESS_SECONDS=0.01; "), steps_of("b", ""));
}

TEST(ProgressLines, ReadingLargeFilesSaysTheShareAndTheTimeLeft) {
  const TempFolder folder;
  write_text(folder.path() / "big.txt", 24 << 20);
  run(folder.path(), "gzip -1 -k big.txt");
  const auto said = [&](const std::string& command, const std::string& expected) {
    const auto outcome = run(folder.path(), kOften + command);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, expected)) << command << "\n" << outcome.output;
    EXPECT_TRUE(contains(outcome.output, " % of ")) << command << "\n" << outcome.output;
  };
  said("tightloop data check " + own_text("big.txt"), "Tokenizing: ");
  said("tightloop data check " + own_text("big.txt.gz"), "Tokenizing: ");
  said("tightloop prepare " + own_text("big.txt") + "--output shards", "Tokenizing: ");
  said("tightloop train " + own_text("big.txt") + "--train.steps 1 --run.name a", "Tokenizing: ");
  said("tightloop train " + own_text("big.txt") + "--data.tokenize live --train.steps 1 --run.name b",
       "Indexing: ");
  said("tightloop tokenizer train big.txt --vocab-size 300 --threads 1 --output tok",
       "Training the tokenizer, reading: ");
}

TEST(ProgressLines, GeneratingManyTextsSaysHowManyAndWhichAreUnfinished) {
  const TempFolder folder;
  ASSERT_EQ(run(folder.path(), "tightloop train " + tiny() + "--train.steps 2 --run.name a").exit_code, 0);
  const auto outcome =
      run(folder.path(), std::string(kOften) +
                             "timeout --preserve-status -s INT 3 '" TIGHTLOOP_BINARY_DIR
                             "/tightloop' generate --run runs/a --prompt add --n 100000 --max-tokens 60 "
                             "--device cpu --batch 4");
  EXPECT_EQ(outcome.exit_code, 130) << outcome.output.substr(0, 1000);
  EXPECT_TRUE(contains(outcome.output, "Texts: ")) << outcome.output.substr(0, 1000);
  EXPECT_TRUE(contains(outcome.output, " (interrupted)\nadd")) << outcome.output.substr(0, 1000);
  EXPECT_FALSE(contains(outcome.output, "sample 100000")) << "never begun";
}

TEST(ProgressLines, ShortWorkHasNone) {
  const TempFolder folder;
  write_text(folder.path() / "small.txt", 100'000);
  const auto outcome = run(folder.path(), "tightloop data check " + own_text("small.txt"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_FALSE(contains(outcome.output, "Tokenizing")) << outcome.output;
}

TEST(OpenMpThreads, SpinOnlyForAMoment) {
  const TempFolder folder;
  const auto environment = [&](const std::string& set) {
    const auto outcome =
        run(folder.path(),
            "unset GOMP_SPINCOUNT OMP_WAIT_POLICY; " + set +
                signalled("train " + tiny() + "--train.steps 1000000 --run.name a --overwrite",
                          "tr '\\0' '\\n' < /proc/$child/environ > environment && cp /proc/$child/comm name",
                          "INT"));
    EXPECT_EQ(outcome.exit_code, 130) << outcome.output;
    return run(folder.path(), "cat environment name").output;
  };
  const std::string with = environment("");
  EXPECT_TRUE(contains(with, "\nGOMP_SPINCOUNT=7000\n")) << with;
  EXPECT_TRUE(with.ends_with("\ntightloop\n")) << with;
  EXPECT_FALSE(contains(environment("export OMP_WAIT_POLICY=active; "), "GOMP_SPINCOUNT"));
  EXPECT_TRUE(contains(environment("export GOMP_SPINCOUNT=77; "), "\nGOMP_SPINCOUNT=77\n"));
}

TEST(OpenMpThreads, TheDynamicLoaderCanStartTheProgram) {
  const TempFolder folder;
  const std::string loader = "/lib64/ld-linux-x86-64.so.2";
  if (!fs::exists(loader)) GTEST_SKIP() << "no " << loader;
  const auto outcome = run(folder.path(), "unset GOMP_SPINCOUNT OMP_WAIT_POLICY; " + loader +
                                              " '" TIGHTLOOP_BINARY_DIR "/tightloop' config data");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "data.train")) << outcome.output;
}

}  // namespace
}  // namespace tightloop::testing
