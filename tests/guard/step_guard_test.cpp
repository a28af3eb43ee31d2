#include "train/guard/step_guard.h"

#include <cmath>

#include "core/files.h"
#include "guard/planted.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::events_of;
using testing::TempFolder;

/// A guard of a run without a model, which is given sums.
struct Judged {
  explicit Judged(OnSpike action) {
    recipe.train.on_spike = action;
    recipe.model.vocab_size = 257;
    guard.emplace(recipe.train, recipe.model, /*random_data=*/false, run, history, processes,
                  at::Device(at::kCPU));
  }
  void add(double loss, bool skipped = false) {
    StepSums sums{++step, std::vector<double>(LossBuffer::kColumns), {}, {}, {}, {}};
    sums.values[LossBuffer::kLoss] = 100 * loss, sums.values[LossBuffer::kTokens] = 100;
    sums.values[LossBuffer::kSkipped] = skipped;
    guard->step(sums, step);
  }
  TempFolder folder;
  Recipe recipe = testing::small_recipe();
  Processes processes{std::nullopt};
  RunFolder run = RunFolder::create(folder / "run", false);
  RunHistory history{run, recipe, processes, cpu_device()};
  std::optional<StepGuard> guard;
  int64_t step = 0;
};

/// A spike at step 101, and what steps that were started before it was seen made of its weights.
void blow_up(Judged& judged) {
  for (int i = 0; i < 100; ++i) judged.add(3);
  judged.add(9);
  for (int i = 0; i < 9; ++i) judged.add(50);
  judged.add(NAN);
}

TEST(StepGuard, WhatFollowsASpikeIsNotJudgedBeforeTheRollback) {
  Judged judged(OnSpike::kRollback);
  blow_up(judged);
  EXPECT_EQ(judged.guard->wants_rollback(), 101);
  EXPECT_FALSE(judged.guard->healthy()) << "no older checkpoint is to go now";
  judged.guard->reset({});
  EXPECT_EQ(judged.guard->wants_rollback(), 0);
  EXPECT_TRUE(judged.guard->healthy());
  judged.step = 90;
  judged.add(3);
}

TEST(StepGuard, WhatFollowsASpikeIsJudgedWhereThereIsNoWayBack) {
  Judged judged(OnSpike::kRollback);
  blow_up(judged);
  const auto message = error_of(ExitCode::kFailure, [&] { judged.guard->forgive(); });
  EXPECT_NE(message.find("the loss rose from 3 to 13"), std::string::npos) << message;
}

TEST(StepGuard, AResumedRunSurvivesABadFirstBatch) {
  Judged judged(OnSpike::kOff);
  judged.step = 50;
  judged.guard->reset({});
  judged.add(NAN, /*skipped=*/true);
  EXPECT_FALSE(judged.guard->healthy());
  judged.add(3);
  EXPECT_TRUE(judged.guard->healthy());
  judged.guard->reset({});
  judged.add(NAN, true), judged.add(NAN, true);
  const auto message = error_of(ExitCode::kFailure, [&] { judged.add(NAN, true); });
  EXPECT_NE(message.find("first 3 steps"), std::string::npos) << message;
}

}  // namespace
}  // namespace tightloop
