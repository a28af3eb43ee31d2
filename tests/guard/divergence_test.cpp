#include "train/guard/divergence.h"

#include <nlohmann/json.hpp>

#include "core/files.h"
#include "support.h"
#include "train/run/checkpoint.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;

constexpr int64_t kVocabulary = 257;
const double kUniform = std::log(kVocabulary);

struct Steps {
  explicit Steps(TrainConfig config = {}, bool random = false)
      : train(std::move(config)), guard(train, kVocabulary, random) {}
  void add(double loss, bool skipped = false, double scale = 0, double tokens = 100, double spike = 0) {
    StepSums sums{++step, std::vector<double>(LossBuffer::kColumns), {}, {}, {}, {}};
    sums.values[LossBuffer::kLoss] = loss * tokens, sums.values[LossBuffer::kTokens] = tokens;
    sums.values[LossBuffer::kSkipped] = skipped, sums.values[LossBuffer::kLossScale] = scale;
    sums.values[LossBuffer::kSpike] = spike;
    guard.step(sums);
  }
  TrainConfig train;
  DivergenceGuard guard;
  int64_t step = 0;
};

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Divergence, UpdatesSkippedInARowAreNamed) {
  Steps steps;
  steps.add(5.7);
  for (int i = 1; i < TrainConfig().max_skips; ++i) steps.add(kUniform, true);
  EXPECT_FALSE(steps.guard.healthy());
  const auto message = error_of(ExitCode::kFailure, [&] { steps.add(kUniform, true); });
  EXPECT_CONTAINS(message, "10 updates");
  EXPECT_CONTAINS(message, "learning rate");
}

TEST(Divergence, HowManySkippedUpdatesStopARunIsASetting) {
  TrainConfig train;
  train.max_skips = 3;
  Steps three(train);
  three.add(5.7);
  for (int i = 0; i < 2; ++i) three.add(5, true);
  EXPECT_CONTAINS(error_of(ExitCode::kFailure, [&] { three.add(5, true); }), "3 updates");
  train.max_skips = 0;
  Steps never(train);
  never.add(5.7);
  for (int i = 0; i < 100; ++i) never.add(5, true);
}

TEST(Divergence, TheWayBackIsFromBeforeTheFirstSkip) {
  TrainConfig train;
  DivergenceGuard guard(train, kVocabulary, false,
                        [](int64_t step) { return "before step " + std::to_string(step); });
  const auto add = [&](int64_t step, bool skipped) {
    StepSums sums{step, std::vector<double>(LossBuffer::kColumns), {}, {}, {}, {}};
    sums.values[LossBuffer::kLoss] = 500, sums.values[LossBuffer::kTokens] = 100;
    sums.values[LossBuffer::kSkipped] = skipped;
    guard.step(sums);
  };
  for (int64_t step = 1; step < 40; ++step) add(step, false);
  for (int64_t step = 40; step < 49; ++step) add(step, true);
  EXPECT_CONTAINS(error_of(ExitCode::kFailure, [&] { add(49, true); }), "before step 40");
}

// The window is as long as ten steps, and the loss may have turned in the midst of it.
TEST(Divergence, TheWayBackIsFromBeforeTheLossesTurned) {
  for (const int64_t turn : {3, 34}) {  // of a run that has just gone on, of one that is under way
    TrainConfig train;
    DivergenceGuard guard(train, kVocabulary, false,
                          [](int64_t step) { return "before step " + std::to_string(step); });
    int64_t step = 0;
    const auto add = [&](double loss) {
      StepSums sums{++step, std::vector<double>(LossBuffer::kColumns), {}, {}, {}, {}};
      sums.values[LossBuffer::kLoss] = loss * 100, sums.values[LossBuffer::kTokens] = 100;
      guard.step(sums);
    };
    while (step < turn - 1) add(3 + 0.1 * static_cast<double>(step % 3));
    EXPECT_CONTAINS(error_of(ExitCode::kFailure,
                             [&] {
                               for (int i = 0; i < 20; ++i) add(6 + 5 * i);
                             }),
                    "before step " + std::to_string(turn));
  }
}

// Nor is what was saved between the turn and a loss that is not finite.
TEST(Divergence, ARiseBeforeALossThatIsNotFiniteBelongsToIt) {
  TrainConfig train;
  DivergenceGuard guard(train, kVocabulary, false,
                        [](int64_t step) { return "before step " + std::to_string(step); });
  int64_t step = 0;
  for (const double loss : {3., 3., 3., 9., 30., 90.}) {
    StepSums sums{++step, std::vector<double>(LossBuffer::kColumns), {}, {}, {}, {}};
    sums.values[LossBuffer::kLoss] = loss * 100, sums.values[LossBuffer::kTokens] = 100;
    guard.step(sums);
  }
  EXPECT_CONTAINS(error_of(ExitCode::kFailure, [&] { guard.evaluated(step, NAN); }), "before step 4");
}

TEST(Divergence, SpikesInARowAreToldFromGradientsThatAreNotFinite) {
  Steps steps;
  for (int i = 0; i < 20; ++i) steps.add(3);
  const auto message = error_of(ExitCode::kFailure, [&] {
    for (int i = 0; i < 10; ++i) steps.add(9, true, 0, 100, /*spike=*/4);
  });
  EXPECT_CONTAINS(message, "train.spike_deviations");
}

TEST(Divergence, AFewSkippedUpdatesAreNot) {
  Steps steps;
  for (int i = 0; i < 500; ++i) steps.add(3, i % TrainConfig().max_skips != 0);
  EXPECT_NO_THROW(steps.guard.finish());
}

TEST(Divergence, TheSearchForALossScaleIsNot) {
  Steps steps;
  double scale = 0x1p100;  // as a user may set it
  for (; scale > 1; scale /= 2) steps.add(5.7, true, scale);
  for (int i = 0; i < 5; ++i) steps.add(5.7, true, scale /= 2);
  steps.add(5.6, false, scale);
  steps.guard.finish();
  for (int i = 1; i < TrainConfig().max_skips; ++i) steps.add(5.6, true, scale);
  EXPECT_CONTAINS(error_of(ExitCode::kFailure, [&] { steps.add(5.6, true, scale); }), "skipped");
}

TEST(Divergence, StepsWithoutTokensAreNotJudged) {
  Steps steps;
  for (int i = 0; i < 200; ++i) steps.add(0, true, 0, 0);
  EXPECT_TRUE(steps.guard.healthy());
  steps.guard.finish();
}

TEST(Divergence, AShortRunThatEndsSkippingIsNamed) {
  Steps steps;
  steps.add(5.7);
  for (int i = 0; i < 3; ++i) steps.add(kUniform, true);
  EXPECT_CONTAINS(error_of(ExitCode::kFailure, [&] { steps.guard.finish(); }), "3 of 4 updates");
}

TEST(Divergence, ALossThatIsNotFiniteIsNamedAtOnce) {
  for (const double loss : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    Steps steps;
    steps.add(3);
    EXPECT_CONTAINS(error_of(ExitCode::kFailure, [&] { steps.add(loss); }), "at step 2");
  }
}

// Its update was skipped: the weights are those of before.
TEST(Divergence, ALossThatIsNotFiniteOnceInASkippedStepIsNot) {
  Steps steps;
  for (int i = 0; i < 20; ++i) steps.add(3, i == 7, 0x1p16, 100);
  steps.add(INFINITY, true, 0x1p16);
  EXPECT_FALSE(steps.guard.healthy());
  for (int i = 0; i < 20; ++i) steps.add(3);
  steps.guard.before_save();
  steps.guard.finish();
  for (int i = 1; i < TrainConfig().max_skips; ++i) steps.add(NAN, true, 0x1p16);
  EXPECT_CONTAINS(error_of(ExitCode::kFailure, [&] { steps.add(NAN, true, 0x1p16); }), "skipped");
}

TEST(Divergence, AnExplosionIsNamedBeforeASave) {
  Steps steps;
  for (int i = 0; i < 5; ++i) steps.add(3);
  for (int i = 0; i < 4; ++i) steps.add(1000);
  EXPECT_FALSE(steps.guard.healthy());
  EXPECT_CONTAINS(error_of(ExitCode::kFailure, [&] { steps.guard.before_save(); }), "learning rate");
  EXPECT_CONTAINS(error_of(ExitCode::kFailure, [&] { steps.add(1000); }), "between step 1 and step 10");
}

// A step of few tokens may be far off.
TEST(Divergence, OneBadStepIsNot) {
  Steps steps;
  for (int i = 0; i < 9; ++i) steps.add(1, false, 0, 10);
  steps.add(30, false, 0, 2);
  steps.guard.before_save();
  EXPECT_FALSE(steps.guard.healthy()) << "but nothing is removed now";
  steps.add(1, false, 0, 10);
  EXPECT_TRUE(steps.guard.healthy());
}

TEST(Divergence, WeightsThatGiveNoFiniteLossAreNotSaved) {
  Steps steps;
  for (int i = 0; i < 5; ++i) steps.add(3);
  for (int i = 0; i < DivergenceGuard::kNotFinite - 1; ++i) steps.add(NAN, true);
  steps.guard.before_save();
  steps.add(NAN, true);
  EXPECT_CONTAINS(error_of(ExitCode::kFailure, [&] { steps.guard.before_save(); }), "not saved");
}

TEST(Divergence, AFallBackToUniformPredictionIsDoubtful) {
  Steps steps;
  for (int i = 0; i < 20; ++i) steps.add(3);
  steps.add(kUniform);
  EXPECT_FALSE(steps.guard.healthy());
}

TEST(Divergence, ALossThatStaysWorseThanUniformPredictionIsNamed) {
  TrainConfig train;
  train.warmup_steps = 40;
  Steps steps(train);
  for (int i = 0; i < 40; ++i) steps.add(i == 0 ? 5.7 : 8);
  for (int i = 1; i < DivergenceGuard::kStuck; ++i) steps.add(8);
  EXPECT_CONTAINS(error_of(ExitCode::kFailure, [&] { steps.add(8); }), "uniform prediction");
}

TEST(Divergence, DeadLogitsAreNamed) {
  Steps steps;
  for (int i = 1; i < DivergenceGuard::kStuck; ++i) steps.add(kUniform + 1e-6);
  EXPECT_CONTAINS(error_of(ExitCode::kFailure, [&] { steps.add(kUniform); }), "uniform prediction");
}

TEST(Divergence, RandomDataAndTinyRatesAreNot) {
  Steps tiny, noisy, large({}, false), random({}, true);
  for (int i = 0; i < 1000; ++i) {
    const double noise = 0.02 * std::sin(i);
    tiny.add(kUniform + 0.1 + noise);
    noisy.add(kUniform + noise);
    large.add(12 - 0.001 * i + noise);  // weights of another tokenizer, that fall slowly
    random.add(kUniform);
  }
  for (auto* steps : {&tiny, &noisy, &large, &random}) {
    EXPECT_TRUE(steps->guard.healthy());
    steps->guard.finish();
  }
}

TEST(Divergence, AHeldOutLossThatIsNotFiniteIsNamed) {
  const Steps steps;
  steps.guard.evaluated(3, 2.5);
  EXPECT_CONTAINS(error_of(ExitCode::kFailure, [&] { steps.guard.evaluated(3, NAN); }), "after step 3");
}

/// The quickstart's model, at a rate that makes activations overflow: norms then give 0, and logits are
/// equal.
Recipe overflowing_recipe(int64_t seed) {
  Recipe recipe = testing::small_recipe();
  recipe.model.layers = 3, recipe.model.width = 128, recipe.model.heads = 4, recipe.model.ffn = 256;
  recipe.model.init_std = 0.06;
  recipe.train.lr = 1000, recipe.train.steps = 12, recipe.train.seed = seed;
  return recipe;
}

TEST(Divergence, ARateOfAThousandIsNamedOnEverySeed) {
  for (const int64_t warmup : {0, 50})
    for (const int64_t seed : {1, 2, 3, 4}) {
      const TempFolder folder;
      auto recipe = overflowing_recipe(seed);
      recipe.train.warmup_steps = warmup;
      const auto run = RunFolder::create(folder / "run", false);
      Trainer trainer(recipe, run);
      const auto message = error_of(ExitCode::kFailure, [&] { trainer.run(); });
      EXPECT_CONTAINS(message, "learning rate");
      EXPECT_TRUE(checkpoint_steps(run.checkpoints()).empty()) << "nothing of it is worth keeping";
    }
}

TEST(Divergence, AGoodCheckpointIsNotRotatedOutByABadOne) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = testing::small_recipe();
  recipe.train.stop_at = 8;
  Trainer(recipe, run).run();
  recipe.train.stop_at = 0, recipe.train.lr = 1e6, recipe.train.schedule = ScheduleKind::kConstant;
  recipe.train.save_steps = 1, recipe.train.keep_checkpoints = 1;
  Trainer worse(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())});
  error_of(ExitCode::kFailure, [&] { worse.run(); });
  EXPECT_EQ(checkpoint_steps(run.checkpoints()).front(), 8);
  EXPECT_NO_THROW(load_checkpoint(run.checkpoints(), 8));
}

}  // namespace
}  // namespace tightloop
