#include <ATen/ops/equal.h>

#include <cmath>

#include "core/files.h"
#include "guard/planted.h"
#include "train/run/run_history.h"
#include "train/trainer.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::events_of;
using testing::Planted;
using testing::TempFolder;

constexpr int64_t kSpikeStep = 300, kAllSteps = 330;

Recipe spiking(const Planted& planted, OnSpike action) {
  Recipe recipe = planted.recipe;
  recipe.train.on_spike = action, recipe.train.steps = kAllSteps, recipe.train.keep_best = false;
  return recipe;
}

TEST(Spikes, AreNamedWithTheirRows) {
  const Planted planted(kSpikeStep - 1, testing::noise());
  const auto run = planted.run();
  Trainer(spiking(planted, OnSpike::kWarn), run).run();
  const auto spikes = events_of(run, "spike");
  ASSERT_EQ(spikes.size(), 1u);
  EXPECT_EQ(spikes[0]["global_step"], kSpikeStep);
  EXPECT_GT(spikes[0]["loss"], spikes[0]["limit"]);
  EXPECT_EQ(spikes[0]["action"], "warn");
  const std::string row = spikes[0]["rows"].at(0);
  EXPECT_TRUE(row.starts_with(planted.origin() + " (loss")) << row;
}

TEST(Spikes, AreNotLookedForWhenOff) {
  const Planted planted(kSpikeStep - 1, testing::noise());
  const auto run = planted.run();
  Trainer(spiking(planted, OnSpike::kOff), run).run();
  EXPECT_TRUE(events_of(run, "spike").empty());
}

bool same_weights(const RunFolder& a, const RunFolder& b) {
  const auto one = load_checkpoint(a.checkpoints()), two = load_checkpoint(b.checkpoints());
  for (const auto& [name, tensor] : one.weights.tensors)
    if (!at::equal(tensor, two.weights.tensors.at(name))) return false;
  return true;
}

TEST(Spikes, AnUpdateIsLeftOutOnTheDevice) {
  const Planted planted(kSpikeStep - 1, testing::noise());
  for (const auto action : {OnSpike::kSkip, OnSpike::kWarn}) {
    auto recipe = spiking(planted, action);
    const auto before = planted.run(fmt::format("before-{}", name_of(action))),
               after = planted.run(fmt::format("after-{}", name_of(action)));
    recipe.train.stop_at = kSpikeStep - 1;
    Trainer(recipe, before).run();
    recipe.train.stop_at = kSpikeStep;
    Trainer(recipe, after).run();
    EXPECT_EQ(same_weights(before, after), action == OnSpike::kSkip) << action;
    EXPECT_EQ(events_of(after, "spike").size(), 1u);
  }
}

TEST(Spikes, ARunThatSkipsThemResumesToTheBit) {
  const Planted planted(kSpikeStep - 1, testing::noise());
  auto recipe = spiking(planted, OnSpike::kSkip);
  const auto whole = planted.run("whole"), parts = planted.run("parts");
  Trainer(recipe, whole).run();
  recipe.train.stop_at = 293;
  Trainer(recipe, parts).run();
  recipe.train.stop_at = 0;
  Trainer(recipe, parts, {.resume_from = load_checkpoint(parts.checkpoints())}).run();
  EXPECT_EQ(events_of(parts, "spike").size(), 1u) << "the limit is kept in the checkpoint";
  EXPECT_TRUE(same_weights(whole, parts));
}

TEST(Spikes, ARollbackPassesOverTheBatchAndResumesToTheBit) {
  const Planted planted(kSpikeStep - 1, testing::noise());
  auto recipe = spiking(planted, OnSpike::kRollback);
  recipe.train.save_steps = 80, recipe.train.eval_steps = 90;
  const auto run = planted.run("run");
  const RunFolder killed(planted.folder / "killed");
  Trainer trainer(recipe, run);
  // Evaluated at 90, 180, 270 and, after the rollback, at 270 again: a run that is killed leaves what is on
  // disk then.
  trainer.also_evaluate([&, k = 0]() mutable -> Task::Evaluation {
    if (++k == 4) fs::copy(run.root(), killed.root(), fs::copy_options::recursive);
    return {};
  });
  EXPECT_EQ(trainer.run().step, kAllSteps);
  const auto back = events_of(run, "rolled_back");
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0]["global_step"], kSpikeStep);
  EXPECT_EQ(back[0]["to"], 240);
  EXPECT_EQ(events_of(run, "spike").size(), 1u) << "the batch did not come again";
  const auto last = load_checkpoint(run.checkpoints());
  EXPECT_EQ(last.metadata["consumed"], kAllSteps + (kSpikeStep - 240));
  int64_t step = 0;
  std::ifstream in(run.metrics());
  for (std::string line; std::getline(in, line);) {
    const auto now = nlohmann::json::parse(line)["global_step"].get<int64_t>();
    EXPECT_GE(now, step) << "lines of steps that were made again are dropped";
    step = now;
  }

  const auto from = load_checkpoint(killed.checkpoints());
  EXPECT_EQ(from.step, 240);
  EXPECT_EQ(from.metadata["consumed"], kSpikeStep);
  Trainer(recipe, killed, {.resume_from = from}).run();
  EXPECT_TRUE(same_weights(run, killed));
}

TEST(Spikes, ARollbackDoesNotChangeHowLongEpochsAre) {
  const Planted planted(kSpikeStep - 1, testing::noise());
  auto recipe = spiking(planted, OnSpike::kRollback);
  recipe.train.steps = 0, recipe.train.epochs = static_cast<double>(kAllSteps) / Planted::kLines;
  recipe.train.save_steps = 80, recipe.train.stop_at = 310;
  const auto run = planted.run();
  Trainer(recipe, run).run();
  ASSERT_EQ(events_of(run, "rolled_back").size(), 1u);
  recipe.train.stop_at = 0;
  const auto from = load_checkpoint(run.checkpoints());
  EXPECT_EQ(from.metadata["passed_over"], kSpikeStep - 240);
  Trainer resumed(recipe, run, {.resume_from = from});
  EXPECT_EQ(resumed.recipe().train.steps, kAllSteps);
}

TEST(Spikes, ARunThatCannotGoBackGoesOn) {
  const Planted planted(kSpikeStep - 1, testing::noise());
  auto recipe = spiking(planted, OnSpike::kRollback);
  recipe.train.save_steps = 80, recipe.train.eval_steps = 90;
  const auto run = planted.run();
  Trainer trainer(recipe, run);
  trainer.also_evaluate([&, k = 0]() mutable -> Task::Evaluation {
    if (++k == 3) fs::rename(run.checkpoints() / "step-00000240", planted.folder / "away");
    return {};
  });
  EXPECT_EQ(trainer.run().step, kAllSteps);
  EXPECT_TRUE(events_of(run, "rolled_back").empty());
  EXPECT_EQ(load_checkpoint(run.checkpoints()).step, kAllSteps);
}

TEST(Spikes, ARunWhoseLastSaveFailedGoesBackToTheOneBefore) {
  const Planted planted(kSpikeStep - 1, testing::noise());
  auto recipe = spiking(planted, OnSpike::kRollback);
  recipe.train.save_steps = 80, recipe.train.eval_steps = 90;
  const auto run = planted.run();
  const fs::path away = planted.folder / "away";
  Trainer trainer(recipe, run);
  trainer.also_evaluate([&, k = 0]() mutable -> Task::Evaluation {  // after 90, 180 and 270 steps
    if (++k == 2) fs::rename(run.checkpoints(), away), write_file_whole(run.checkpoints(), "");
    if (k == 3) fs::remove(run.checkpoints()), fs::rename(away, run.checkpoints());
    return {};
  });
  EXPECT_EQ(trainer.run().step, kAllSteps);
  const auto back = events_of(run, "rolled_back");
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0]["to"], 160);
}

TEST(Spikes, WithoutACheckpointARunGoesOn) {
  const Planted planted(kSpikeStep - 1, testing::noise());
  auto recipe = spiking(planted, OnSpike::kRollback);
  recipe.train.save_steps = 0, recipe.train.save_minutes = 0;
  const auto run = planted.run();
  EXPECT_EQ(Trainer(recipe, run).run().step, kAllSteps);
  EXPECT_TRUE(events_of(run, "rolled_back").empty());
  EXPECT_EQ(events_of(run, "spike").size(), 1u);
}

TEST(Spikes, RollbacksToOneCheckpointEnd) {
  const Planted planted(0, "the cow sat");
  auto recipe = planted.recipe;
  recipe.train.steps = 4;
  const auto run = planted.run();
  Trainer(recipe, run).run();
  Processes processes(std::nullopt);
  for (int64_t i = 0; i < RunHistory::kMostRollbacks; ++i) {
    RunHistory history(run, recipe, processes, cpu_device());
    history.roll_back(load_checkpoint(run.checkpoints()), 100 + i, 10 * i);
  }
  RunHistory history(run, recipe, processes, cpu_device());
  const auto message =
      error_of(ExitCode::kFailure, [&] { history.roll_back(load_checkpoint(run.checkpoints()), 150, 40); });
  EXPECT_NE(message.find("after 3 rollbacks to the checkpoint of step 4"), std::string::npos) << message;
}

}  // namespace
}  // namespace tightloop
