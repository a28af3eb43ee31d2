#include "train/run/best_evaluation.h"

#include <cmath>

#include "support.h"
#include "train/run/checkpoint.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::small_recipe;
using testing::TempFolder;

Measured measured(double loss, double accuracy) { return {{"eval/loss", loss}, {"eval/accuracy", accuracy}}; }

TEST(BestEvaluation, IsTheLowestLossOrTheHighestOfAnythingElse) {
  BestEvaluation by_loss(BestBy::kLoss), by_accuracy(BestBy::kAccuracy);
  for (BestEvaluation* best : {&by_loss, &by_accuracy}) {
    best->add(10, measured(2.0, 0.5));
    best->add(20, measured(1.0, 0.4));
    best->add(30, measured(1.5, 0.6));
    best->add(40, measured(NAN, NAN));
  }
  EXPECT_EQ(by_loss.step(), 20);
  EXPECT_EQ(by_loss.worse(), 2);
  EXPECT_EQ(by_accuracy.step(), 30);
  EXPECT_EQ(by_accuracy.worse(), 1);
  nlohmann::json metadata;
  by_accuracy.keep_in(metadata);
  EXPECT_EQ(metadata["best"],
            (nlohmann::json{{"step", 30}, {"by", "accuracy"}, {"value", 0.6}, {"loss", 1.5}}));
  EXPECT_EQ(by_accuracy.text(), "eval/accuracy has not risen for 1 evaluations; it was best at step 30");
}

TEST(BestEvaluation, OneThatCouldNotBeMeasuredChangesNothing) {
  BestEvaluation best(BestBy::kBleu);
  best.add(10, measured(1, 1));
  nlohmann::json metadata;
  best.keep_in(metadata);
  EXPECT_EQ(best.worse(), 0);
  EXPECT_FALSE(metadata.contains("best"));
}

TEST(BestEvaluation, GoesOnFromACheckpointOldOnesToo) {
  BestEvaluation best(BestBy::kLoss);
  EXPECT_TRUE(best.go_on_from({{"best", {{"step", 7}, {"loss", 0.5}}}, {"worse", 2}}));
  EXPECT_EQ(best.step(), 7);
  EXPECT_EQ(best.worse(), 2);
  best.add(8, measured(0.6, 0));
  EXPECT_EQ(best.step(), 7);
  nlohmann::json metadata;
  best.keep_in(metadata);
  BestEvaluation again(BestBy::kLoss), other(BestBy::kAccuracy);
  EXPECT_TRUE(again.go_on_from(metadata));
  EXPECT_EQ(again.worse(), 3);
  EXPECT_FALSE(other.go_on_from(metadata)) << "values of another metric cannot be compared";
  EXPECT_EQ(other.step(), 0);
  EXPECT_TRUE(other.go_on_from(nlohmann::json::object()));
}

TEST(BestEvaluation, WhatIsNotMeasuredIsRefused) {
  const TempFolder folder;
  auto recipe = small_recipe();
  recipe.train.best_by = BestBy::kBleu;
  const auto refused =
      error_of(ExitCode::kUsage, [&] { Trainer(recipe, RunFolder::create(folder / "run", false)); });
  EXPECT_NE(refused.find("for seq2seq"), std::string::npos) << refused;
  recipe.model.family = "seq2seq", recipe.train.eval_translations = 0;
  const auto none = error_of(ExitCode::kUsage, [&] { require_best_by(recipe); });
  EXPECT_NE(none.find("--train.eval_translations"), std::string::npos) << none;
  recipe.train.eval_translations = 5;
  require_best_by(recipe);
}

TEST(BestEvaluation, DecidesWhichCheckpointStays) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = small_recipe();
  recipe.train.steps = 8, recipe.train.eval_steps = 2, recipe.train.keep_checkpoints = 1;
  recipe.train.best_by = BestBy::kAccuracy, recipe.train.lr = 1e-30, recipe.train.min_lr = 1;
  Trainer(recipe, run).run();
  const auto metadata = load_checkpoint(run.checkpoints()).metadata;
  EXPECT_EQ(metadata["best"]["by"], "accuracy") << metadata["best"];
  EXPECT_EQ(metadata["best"]["step"], 2) << "nothing was learned: no later one is better";
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(metadata["worse"], 3);

  recipe.train.best_by = BestBy::kLoss, recipe.train.steps = 10;
  Trainer(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())}).run();
  EXPECT_EQ(load_checkpoint(run.checkpoints()).metadata["best"]["by"], "loss");
}

}  // namespace
}  // namespace tightloop
