// What one of two processes meets: both make the same of it.
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>

#include <optional>

#include "dist/several.h"
#include "guard/planted.h"
#include "ops/compare.h"
#include "train/guard/step_guard.h"
#include "train/run/run_history.h"
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

// All say the same, also those that do not see the run's folder.
TEST(FaultsOfSeveral, TheWayBackIsThatOfTheRunsFolder) {
  if (!in_child()) return expect_success(2);
  Processes processes;
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  const RunFolder run(folder / (processes.main() ? "run" : "copies"));
  if (processes.main()) {
    fs::create_directories(run.checkpoints());
    save_checkpoint(run.checkpoints(), 4, {}, {}, {});
  }
  Recipe recipe = small_recipe();
  recipe.model.vocab_size = 257;
  RunHistory history(run, recipe, processes, cpu_device());
  StepGuard guard(recipe.train, recipe.model, /*random_data=*/false, run, history, processes,
                  at::Device(at::kCPU));
  StepSums sums{1, std::vector<double>(LossBuffer::kColumns), {}, {}, {}, {}};
  sums.values[LossBuffer::kLoss] = 300, sums.values[LossBuffer::kTokens] = 100;
  for (; sums.step < 10; ++sums.step) guard.step(sums, sums.step);
  sums.values[LossBuffer::kLoss] = INFINITY;
  const auto message = error_of(ExitCode::kFailure, [&] { guard.step(sums, sums.step); });
  EXPECT_CONTAINS(message, "The last good checkpoint is that of step 4: 'tightloop train --resume " +
                               (folder / "run").string());
}

// Of a sharded state each process has new weights of its own part alone until the next step.
TEST(FaultsOfSeveral, ASpikesRowsAreJudgedByWeightsOfOneStep) {
  if (!in_child()) return expect_success(2);
  constexpr int64_t kSpike = 180;
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  Planted planted(2 * (kSpike - 1), noise());  // of rank 0
  planted.recipe.train.on_spike = OnSpike::kWarn, planted.recipe.train.keep_best = false;
  planted.recipe.train.steps = kSpike + 5;
  Processes processes;
  std::vector<std::string> rows;
  for (const Sharding shard : {Sharding::kNone, Sharding::kOptimizer}) {
    planted.recipe.dist = {.shard = shard, .bucket_mb = 0.01};
    const fs::path root = folder / std::string(name_of(shard));
    const auto run = processes.main() ? RunFolder::create(root, false) : RunFolder(root);
    Trainer(planted.recipe, run, {.processes = &processes}).run();
    if (!processes.main()) continue;
    const auto spikes = events_of(run, "spike");
    ASSERT_EQ(spikes.size(), 1u);
    rows.push_back(spikes[0]["rows"].dump());
  }
  if (processes.main()) {
    EXPECT_EQ(rows[0], rows[1]);
  }
}

TEST(FaultsOfSeveral, ASpikesRowIsNamedWhoeverHadIt) {
  if (!in_child()) return expect_success(2);
  constexpr int64_t kSpike = 180;
  Planted planted(2 * (kSpike - 1) + 1, noise());  // of rank 1
  planted.recipe.train.on_spike = OnSpike::kWarn, planted.recipe.train.keep_best = false;
  planted.recipe.train.steps = kSpike + 5;
  Processes processes;
  const fs::path root = OneOfTwo::root();
  const auto run = processes.main() ? RunFolder::create(root, false) : RunFolder(root);
  Trainer(planted.recipe, run, {.processes = &processes}).run();
  if (!processes.main()) return;
  const auto spikes = events_of(run, "spike");
  ASSERT_EQ(spikes.size(), 1u);
  ASSERT_EQ(spikes[0]["rows"].size(), 2u) << "one of each process";
  const auto worst = spikes[0]["rows"][0].get<std::string>();
  EXPECT_CONTAINS(worst, fmt::format("', line {} (loss ", planted.line));
}

constexpr double kSlow = 0.05;  // seconds

// With dist.shard gradients a process waits for the others within backward.
TEST(FaultsOfSeveral, WaitingForAStragglerIsNoWorkOfOnesOwn) {
  if (!in_child()) return expect_success(2);
  Planted planted(0, "the cat sat on the mat");
  planted.recipe.model.layers = 4;
  planted.recipe.dist = {.shard = Sharding::kGradients, .bucket_mb = 0.001};
  OneOfTwo two(planted.recipe);
  const auto& parameters = two.trainer.task().trained().all();
  for (const auto& parameter : parameters)
    if (!two.processes.main() && parameter.name.ends_with("down"))
      parameter.value.register_hook([](const at::Tensor& gradient) {
        std::this_thread::sleep_for(std::chrono::duration<double>(kSlow));
        return gradient;
      });
  two.train(8);
  double own = 0, waited = 0;
  for (const StepSums& step : two.sums) {
    if (step.step <= 3) continue;
    own += step[LossBuffer::kForward] + step[LossBuffer::kBackward];
    waited += step[LossBuffer::kCommunication];
  }
  const double slept = 5 * 4 * kSlow;
  if (two.processes.main()) {
    EXPECT_GT(waited, slept / 2);
    EXPECT_LT(own, waited) << "as of a process that computes hardly anything";
  } else {
    EXPECT_GT(own, 0.9 * slept);
  }
}

}  // namespace
}  // namespace tightloop::testing
