#include "train/run/step_size.h"

#include "support.h"

namespace tightloop {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(StepSize, AStepOfSoManyTokensKeepsItsRowsWhateverTheProcesses) {
  struct Fit {
    int64_t world, micro_batch, fitting;
  };
  for (const Fit& fit : {Fit{1, 4, 4}, Fit{2, 4, 3}, Fit{3, 4, 4}, Fit{4, 4, 3}, Fit{6, 4, 2}, Fit{12, 4, 1},
                         Fit{2, 6, 6}, Fit{4, 2, 1}}) {
    TrainConfig train;
    train.step_tokens = 12 * 32, train.micro_batch = fit.micro_batch;
    const auto note = fit_micro_batch(train, 32, fit.world);
    EXPECT_EQ(train.micro_batch, fit.fitting) << fit.world;
    EXPECT_EQ(12 % (train.micro_batch * fit.world), 0);
    EXPECT_EQ(note.empty(), fit.micro_batch == fit.fitting) << note;
    if (!note.empty()) {
      EXPECT_TRUE(contains(note, fmt::format("was {}, is {}", fit.micro_batch, fit.fitting))) << note;
    }
  }
}

TEST(StepSize, ProcessesThatCannotShareAStepAreRefused) {
  TrainConfig train;
  train.step_tokens = 12 * 32, train.micro_batch = 2;
  const auto error = testing::error_of(ExitCode::kUsage, [&] { fit_micro_batch(train, 32, 5); });
  EXPECT_TRUE(contains(error, "12 rows") && contains(error, "5 processes")) << error;
}

TEST(StepSize, WithoutStepTokensNothingIsFitted) {
  TrainConfig train;
  train.micro_batch = 4;
  EXPECT_EQ(fit_micro_batch(train, 32, 5), "");
  EXPECT_EQ(train.micro_batch, 4);
}

TEST(StepSize, AnotherSizeIsSaidWithWhatKeepsIt) {
  EXPECT_EQ(step_size_note({}, {8, 2}, 24), "") << "an old checkpoint does not say";
  EXPECT_EQ(step_size_note({8, 2}, {8, 4}, 24), "");
  EXPECT_EQ(step_size_note({8, 2}, {16, 4}, 24),
            "The effective batch changes: a step had 8 rows in 2 processes, it has 16 rows in 4 processes "
            "now. To keep it: --train.step_tokens 192.");
  EXPECT_EQ(
      step_size_note({4, 2}, {2, 1}, 0),
      "The effective batch changes: a step had 4 micro-batches in 2 processes, it has 2 micro-batches in "
      "1 process now. To keep it: --train.accumulate 4.");
  EXPECT_EQ(
      step_size_note({4, 2}, {3, 3}, 24),
      "The effective batch changes: a step had 4 rows in 2 processes, it has 3 rows in 3 processes now.");
}

TEST(StepSize, GoesThroughACheckpoint) {
  const StepSize size{12, 3}, read = StepSize::of({{"batch", size.to_json()}});
  EXPECT_EQ(read.samples, 12);
  EXPECT_EQ(read.processes, 3);
  EXPECT_EQ(StepSize::of(nlohmann::json::object()).samples, 0);
}

}  // namespace
}  // namespace tightloop
