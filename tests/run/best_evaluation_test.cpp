#include "train/run/best_evaluation.h"

#include <cmath>

#include "support.h"
#include "train/run/checkpoint.h"
#include "train/run/checkpoint_name.h"
#include "train/small_recipe.h"
#include "train/trainer.h"
#include "train/watch/run_follower.h"

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

TEST(BestEvaluation, IsNotComparedWithThoseOnOtherData) {
  const auto of = [](const char* val, const char* train) {
    nlohmann::json files{{{"part", "train"}, {"bytes", 5}, {"xxh3", train}}};
    if (*val) files.push_back({{"part", "val"}, {"bytes", 5}, {"xxh3", val}});
    return nlohmann::json{{"data", {{"per_file", 1}, {"files", files}}}};
  };
  const Recipe recipe;
  EXPECT_EQ(measured_otherwise(of("a", "b"), of("a", "c"), recipe, recipe), "")
      << "other data is learned from";
  EXPECT_NE(measured_otherwise(of("a", "b"), of("d", "b"), recipe, recipe), "");
  EXPECT_NE(measured_otherwise(of("", "b"), of("", "c"), recipe, recipe), "")
      << "held out of what has changed";
  auto old = of("a", "b");
  for (auto& file : old["data"]["files"]) file.erase("part");
  EXPECT_EQ(measured_otherwise(old, of("a", "b"), recipe, recipe), "") << "older versions had no parts";
  EXPECT_NE(measured_otherwise(old, of("d", "b"), recipe, recipe), "");
}

TEST(BestEvaluation, IsNotComparedWithThoseOfMoreOrFewerRows) {
  const auto otherwise = [](const Recipe& before, const Recipe& now) {
    return measured_otherwise(nlohmann::json::object(), nlohmann::json::object(), before, now);
  };
  Recipe recipe, other;
  recipe.train.eval_batches = other.train.eval_batches = 16;
  recipe.train.micro_batch = other.train.micro_batch = 8;
  EXPECT_EQ(otherwise(recipe, other), "");
  other.train.eval_batches = 8, other.train.micro_batch = 16;
  EXPECT_EQ(otherwise(recipe, other), "") << "as many rows";
  other.train.micro_batch = 8;
  EXPECT_NE(otherwise(recipe, other), "");
  other.train.eval_batches = recipe.train.eval_batches = 0;
  other.train.micro_batch = 2;
  EXPECT_EQ(otherwise(recipe, other), "") << "all that are held out";

  recipe.model.family = other.model.family = "seq2seq";
  recipe.train.best_by = other.train.best_by = BestBy::kLoss;
  other.train.eval_batches = 99, other.train.eval_translations = recipe.train.eval_translations + 1;
  EXPECT_EQ(otherwise(recipe, other), "") << "the loss is of all pairs";
  recipe.train.best_by = other.train.best_by = BestBy::kChrf;
  EXPECT_NE(otherwise(recipe, other), "");
  other.train.eval_translations = recipe.train.eval_translations;
  other.train.bleu_tokenize = BleuTokens::kZh;
  EXPECT_EQ(otherwise(recipe, other), "") << "chrF has no tokens";
  recipe.train.best_by = other.train.best_by = BestBy::kBleu;
  EXPECT_NE(otherwise(recipe, other), "");
}

// What a warning promised holds for the processes after it.
TEST(BestEvaluation, TheFormerOneStaysUntilThereIsAnother) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = small_recipe();
  recipe.train.steps = 20, recipe.train.eval_steps = 2, recipe.train.save_steps = 1;
  recipe.train.keep_checkpoints = 1, recipe.train.stop_at = 4;
  Trainer(recipe, run).run();
  auto state = read_checkpoint_state(run.checkpoints(), 4).metadata;
  state["best"] = {{"step", 2}, {"by", "loss"}, {"value", 1e-9}, {"loss", 1e-9}};
  update_metadata(run.checkpoints(), 4, state);
  save_checkpoint(run.checkpoints(), 2, {}, {}, nlohmann::json::object());

  const auto resume = [&](int64_t stop_at) {
    recipe.train.stop_at = stop_at;
    Trainer(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())}).run();
    return checkpoint_steps(run.checkpoints());
  };
  recipe.train.eval_batches += 1, recipe.train.eval_steps = 10;
  EXPECT_EQ(resume(6), (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(best_step_of(run.checkpoints()), 2);
  EXPECT_EQ(resume(8), (std::vector<int64_t>{2, 8})) << "of which the checkpoint alone knows";
  EXPECT_EQ(resume(11), (std::vector<int64_t>{10, 11})) << "there is another";
  EXPECT_EQ(best_step_of(run.checkpoints()), 10);
}

// A best of before, on easier data, would never be reached again.
TEST(BestEvaluation, IsLookedForAnewWhereWhatIsMeasuredHasChanged) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = small_recipe();
  recipe.train.steps = 4, recipe.train.eval_steps = 2, recipe.train.save_steps = 2;
  Trainer(recipe, run).run();
  auto from = load_checkpoint(run.checkpoints());
  from.metadata["best"] = {{"step", 2}, {"by", "loss"}, {"value", 1e-9}, {"loss", 1e-9}};
  recipe.train.steps = 6;
  Trainer(recipe, run, {.resume_from = from}).run();
  EXPECT_EQ(load_checkpoint(run.checkpoints()).metadata["best"]["step"], 2) << "nothing has changed";
  recipe.train.steps = 8, recipe.train.eval_batches += 1;
  Trainer(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())}).run();
  EXPECT_EQ(load_checkpoint(run.checkpoints()).metadata["best"]["step"], 8);
  const auto bests = summary_of(run.root()).best();
  ASSERT_TRUE(bests);
  EXPECT_EQ(bests->first, 8) << "nor does who watches compare them";
}

}  // namespace
}  // namespace tightloop
