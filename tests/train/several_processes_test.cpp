#include <algorithm>

#include "dist/several.h"
#include "ops/compare.h"
#include "train/run/checkpoint.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop::testing {
namespace {

TEST(SeveralProcesses, TrainAsOneDoesOnAllTheRows) {
  if (!in_child()) return expect_success(2);
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  auto recipe = small_recipe();
  recipe.train.steps = 12, recipe.train.micro_batch = 4, recipe.train.threads = 1;
  std::vector<double> losses;
  bool main = false;
  {
    Processes processes;
    main = processes.main();
    const auto run = main ? RunFolder::create(folder / "two", false) : RunFolder(folder / "two");
    losses = Trainer(recipe, run, {.processes = &processes}).run().losses;
  }
  if (!main) {
    EXPECT_TRUE(losses.empty()) << "the main process alone writes";
    return;
  }
  recipe.train.micro_batch = 8;
  const auto one = Trainer(recipe, RunFolder::create(folder / "one", false)).run();
  ASSERT_EQ(losses.size(), 3u);
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], one.losses[i], 1e-5 * one.losses[i]);
  const auto weights = load_checkpoint(folder / "two" / "checkpoints").weights,
             wanted = load_checkpoint(folder / "one" / "checkpoints").weights;
  ASSERT_GT(wanted.tensors.size(), 3u);
  for (const auto& [name, tensor] : wanted.tensors)
    EXPECT_LT(relative_error(weights.tensors.at(name), tensor), 1e-3) << name;
  const auto text = read_file(RunFolder(folder / "two").metrics());
  EXPECT_EQ(std::ranges::count(text, '\n'), 4) << "three lines of losses and an evaluation, once:\n" << text;
}

// As where train.precision auto means another dtype on another machine, or no GPU is found there.
TEST(SeveralProcesses, WithAnotherDtypeAreRefusedByAll) {
  if (!in_child()) return expect_success(2);
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  Processes processes;
  auto recipe = small_recipe();
  recipe.train.precision = processes.main() ? Precision::kFp32 : Precision::kBf16;
  const auto run = processes.main() ? RunFolder::create(folder / "run", false) : RunFolder(folder / "run");
  const auto message =
      error_of(ExitCode::kDevice, [&] { Trainer(recipe, run, {.processes = &processes}).run(); });
  EXPECT_CONTAINS(message, "rank 1 of 2 (host " + host_name() + ") has as train.precision BFloat16, rank 0");
  EXPECT_CONTAINS(message, "has Float. Start");
}

TEST(SeveralProcesses, OneGoesOnWithTheRowsAfterThoseOfTwo) {
  if (!in_child()) return expect_success(2);
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  auto recipe = small_recipe();
  recipe.train.steps = 12, recipe.train.micro_batch = 4, recipe.train.threads = 1, recipe.train.stop_at = 6;
  {
    Processes processes;
    const bool main = processes.main();
    Trainer(recipe, main ? RunFolder::create(folder / "two", false) : RunFolder(folder / "two"),
            {.processes = &processes})
        .run();
    if (!main) return;
  }
  recipe.train.micro_batch = 8, recipe.train.stop_at = 0;
  const RunFolder run(folder / "two");
  EXPECT_EQ(load_checkpoint(run.checkpoints()).metadata.at("consumed"), 6 * 8);
  Trainer alone(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())});
  alone.run();
  Trainer(recipe, RunFolder::create(folder / "one", false)).run();
  const auto weights = load_checkpoint(run.checkpoints()).weights,
             wanted = load_checkpoint(folder / "one" / "checkpoints").weights;
  for (const auto& [name, tensor] : wanted.tensors)
    EXPECT_LT(relative_error(weights.tensors.at(name), tensor), 1e-3) << name;
}

}  // namespace
}  // namespace tightloop::testing
