// What one of two processes meets: both make the same of it.
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>

#include <optional>

#include "dist/several.h"
#include "guard/planted.h"
#include "ops/compare.h"
#include "train/trainer.h"

namespace tightloop::testing {
namespace {

constexpr const char* kNothingToLearn =
    "the cow ran to the very long road and the cow met mates";  // the first s is past the row

/// Steps of a run of two processes, of which this is one.
struct OneOfTwo {
  Processes processes;
  const RunFolder run;
  Trainer trainer;
  std::vector<StepSums> sums;

  explicit OneOfTwo(const Recipe& recipe)
      : run(processes.main() ? RunFolder::create(root(), false) : RunFolder(root())),
        trainer(recipe, run, {.processes = &processes}) {}
  static fs::path root() { return fs::path(std::getenv("TIGHTLOOP_TEST_FOLDER")) / "two"; }

  void train(int64_t steps) { trainer.take_steps(steps, sums); }
  /// Steps that made no update in this process.
  std::vector<int64_t> skipped() const {
    std::vector<int64_t> steps;
    for (const StepSums& step : sums)
      if (step[LossBuffer::kSkipped] != 0) steps.push_back(step.step);
    return steps;
  }
  void expect_same_weights() {
    for (const auto& parameter : trainer.task().trained().all()) {
      const at::Tensor of_main = parameter.value.detach().clone();
      processes.broadcast(of_main);
      EXPECT_TRUE(at::equal(parameter.value, of_main)) << parameter.name;
    }
  }
};

TEST(FaultsOfSeveral, ARowWhoseLossIsNotFiniteIsSkippedByAll) {
  if (!in_child()) return expect_success(2);
  Planted planted(23, "the ~ sat on the mat", /*micro_batch=*/2);  // the last row of rank 1 in step 6
  planted.recipe.model.family = "gpt2", planted.recipe.model.tie_embeddings = false;
  OneOfTwo two(planted.recipe);
  for (const auto& parameter : two.trainer.model().parameters().all()) {
    if (parameter.name != "embedding") continue;
    c10::NoGradGuard no_grad;
    for (int64_t i = 0; i < parameter.value.size(1); ++i) parameter.value['~'][i] = i % 2 ? 3e38 : -3e38;
  }
  two.train(10);
  EXPECT_EQ(two.skipped(), std::vector<int64_t>{6});
  two.expect_same_weights();
  if (two.processes.main()) {
    EXPECT_EQ(events_of(two.run, "skipped").size(), 1u) << "the main process alone writes";
  }
}

TEST(FaultsOfSeveral, ABatchWithNothingToLearnInOneLeavesTheStepToTheOther) {
  if (!in_child()) return expect_success(2);
  Planted masked(11, kNothingToLearn);  // all that rank 1 has in step 6
  masked.recipe.data.loss_after = "s", masked.recipe.data.seq_len = 24;
  std::optional<OneOfTwo> two(masked.recipe);
  two->train(10);
  EXPECT_EQ(two->skipped(), std::vector<int64_t>{});
  two->expect_same_weights();
  const auto sums = two->sums;
  const bool main = two->processes.main();
  two.reset();
  if (!main) return;
  masked.recipe.train.micro_batch = 2;
  std::vector<StepSums> wanted;
  Trainer(masked.recipe, masked.run()).take_steps(10, wanted);
  ASSERT_EQ(sums.size(), wanted.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(sums[i][LossBuffer::kTokens], wanted[i][LossBuffer::kTokens]) << i;
    EXPECT_NEAR(sums[i][LossBuffer::kLoss], wanted[i][LossBuffer::kLoss], 1e-4 * wanted[i][LossBuffer::kLoss])
        << i;
  }
}

TEST(FaultsOfSeveral, AStepWithNothingToLearnIsSkippedByAll) {
  if (!in_child()) return expect_success(2);
  Planted masked({10, 11}, kNothingToLearn, /*micro_batch=*/1);  // all of step 6
  masked.recipe.data.loss_after = "s", masked.recipe.data.seq_len = 24;
  OneOfTwo two(masked.recipe);
  two.train(10);
  EXPECT_EQ(two.skipped(), std::vector<int64_t>{6});
  two.expect_same_weights();
}

}  // namespace
}  // namespace tightloop::testing
