#include "train/run/run_length.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/files.h"
#include "small_recipe.h"
#include "support.h"
#include "train/run/checkpoint.h"
#include "train/run/resume_check.h"
#include "train/run/run_settings.h"
#include "train/trainer.h"

namespace tightloop::testing {
namespace {

Recipe with_command_line(TrainConfig train, const std::vector<std::string>& arguments) {
  Recipe recipe;
  recipe.train = train;
  Config config = recipe.bind();
  config.apply(arguments);
  prefer_command_line(recipe.train, config);
  return recipe;
}

TEST(RunLength, StepsOfEpochsRoundUp) {
  EXPECT_EQ(steps_of_epochs(1, 100, 10), 10);
  EXPECT_EQ(steps_of_epochs(1, 101, 10), 11);
  EXPECT_EQ(steps_of_epochs(2.5, 100, 10), 25);
  EXPECT_EQ(steps_of_epochs(0.1, 10, 1), 1);    // not 2 for a rounding error
  EXPECT_EQ(steps_of_epochs(0.3, 10, 1), 3);    // 0.3 * 10 is above 3 in binary
  EXPECT_EQ(steps_of_epochs(0.001, 10, 8), 1);  // at least one
}

TEST(RunLength, GoesOnFromWhatWasSeen) {
  EXPECT_EQ(steps_of_epochs(2, 100, 10, 7, 70), 20);
  EXPECT_EQ(steps_of_epochs(2, 100, 20, 7, 70), 7 + 7);  // 130 rows left in larger batches
  EXPECT_EQ(steps_of_epochs(1, 100, 10, 30, 300), 30);   // done long ago
}

TEST(RunLength, TheCommandLineCounts) {
  TrainConfig recipe;
  recipe.steps = 500;
  EXPECT_EQ(with_command_line(recipe, {"--train.epochs", "3"}).train.steps, 0);
  recipe.epochs = 2;
  EXPECT_EQ(with_command_line(recipe, {"--train.steps=9"}).train.epochs, 0);
  EXPECT_EQ(with_command_line(recipe, {"--train.lr=1"}).train.epochs, 2);
  const auto why = error_of(ExitCode::kUsage, [&] {
    with_command_line(recipe, {"--train.steps=9", "--train.epochs=1"});
  });
  EXPECT_NE(why.find("--train.steps and --train.epochs"), std::string::npos) << why;
  recipe.warmup_steps = 50;
  EXPECT_EQ(with_command_line(recipe, {"--train.warmup_ratio=0.1"}).train.warmup_steps, 0);
  EXPECT_EQ(with_command_line(recipe, {"--train.warmup_ratio=0"}).train.warmup_steps, 0);
  recipe.warmup_ratio = 0.05;
  EXPECT_EQ(with_command_line(recipe, {"--train.warmup_steps=0"}).train.warmup_ratio, 0);
}

TEST(RunLength, IntervalsFollowFromTheSteps) {
  TrainConfig train;
  train.steps = 2000, train.warmup_ratio = 0.05, train.eval_batches = 16;
  resolve_intervals(train);
  EXPECT_EQ(train.warmup_steps, 100);
  EXPECT_EQ(train.eval_steps, 200);
  train.steps = 4000;  // a run that goes on keeps them
  resolve_intervals(train);
  EXPECT_EQ(train.warmup_steps, 100);
  EXPECT_EQ(train.eval_steps, 200);
  TrainConfig brief;
  brief.steps = 40, brief.eval_steps = -1;
  resolve_intervals(brief);
  EXPECT_GT(brief.eval_steps, 40);  // at the end alone: more would cost more than the training
}

TEST(RunLength, EpochsTrainAndGoOnForLonger) {
  TempFolder folder;
  Recipe recipe = small_recipe();
  recipe.train.epochs = 0.5, recipe.train.steps = 0, recipe.train.warmup_ratio = 0.2;
  const auto run = RunFolder::create(folder.path() / "a", false);
  int64_t steps = 0;
  {
    Trainer trainer(recipe, run);
    steps = trainer.recipe().train.steps;
    EXPECT_EQ(steps, steps_of_epochs(0.5, trainer.task().epoch_samples(), recipe.train.micro_batch));
    EXPECT_EQ(trainer.recipe().train.warmup_steps, std::llround(0.2 * static_cast<double>(steps)));
    EXPECT_EQ(trainer.run().step, steps);
  }
  const auto checkpoint = load_checkpoint(run.checkpoints());
  const Recipe kept = read_settings(run, checkpoint.metadata, true);
  EXPECT_EQ(kept.train.steps, steps);
  EXPECT_EQ(kept.train.epochs, 0.5);
  const auto done = check_resume(run, checkpoint, {});
  EXPECT_NE(done.nothing_to_do.find("--train.epochs 1"), std::string::npos) << done.nothing_to_do;
  auto longer = check_resume(run, checkpoint, {{"--train.epochs", "1"}, false});
  EXPECT_TRUE(longer.nothing_to_do.empty()) << longer.nothing_to_do;
  Trainer trainer(longer.recipe, run, {.resume_from = checkpoint});
  check_resumed_epochs(trainer.recipe(), run, checkpoint, longer);
  EXPECT_TRUE(longer.nothing_to_do.empty());
  EXPECT_EQ(trainer.recipe().train.steps, steps_of_epochs(1, trainer.task().epoch_samples(), 8));
  EXPECT_EQ(trainer.run().step, trainer.recipe().train.steps);
  EXPECT_EQ(read_settings(run, load_checkpoint(run.checkpoints()).metadata, true).train.epochs, 1);
}

TEST(RunLength, SavesByTimeAndChangesNoBits) {
  TempFolder folder;
  const auto weights = [&](const char* name, double minutes) {
    Recipe recipe = small_recipe();
    recipe.train.steps = 6, recipe.train.keep_checkpoints = 0, recipe.train.save_minutes = minutes;
    const auto run = RunFolder::create(folder.path() / name, false);
    Trainer(recipe, run).run();
    const auto steps = checkpoint_steps(run.checkpoints());
    EXPECT_EQ(steps.size(), minutes > 0 ? 6u : 1u);  // any step takes longer than a microsecond
    return read_file(run.checkpoints() / "step-00000006" / "model.safetensors");
  };
  EXPECT_EQ(weights("timed", 1e-9), weights("untimed", 0));
}

TEST(RunLength, SavesByTimeDoNotPushOutThoseOfSteps) {
  TempFolder folder;
  for (const int64_t keep : {0, 2}) {
    Recipe recipe = small_recipe();
    recipe.train.steps = 9, recipe.train.save_steps = 3, recipe.train.save_minutes = 1e-9;
    recipe.train.keep_checkpoints = keep;
    const auto run = RunFolder::create(folder.path() / std::to_string(keep), false);
    recipe.train.stop_at = 5;  // an end, not a save by time
    Trainer(recipe, run).run();
    recipe.train.stop_at = 0;
    Trainer trainer(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())});
    trainer.run();
    const auto steps = checkpoint_steps(run.checkpoints());
    EXPECT_EQ(steps, keep == 0 ? (std::vector<int64_t>{3, 5, 6, 9}) : (std::vector<int64_t>{6, 9}));
  }
}

TEST(RunLength, AResumePlansWarmUpAndEvaluationsFromItsOwnSteps) {
  TempFolder folder;
  Recipe recipe = small_recipe();
  recipe.train.epochs = 0.5, recipe.train.steps = 0;
  const auto run = RunFolder::create(folder.path() / "a", false);
  Trainer(recipe, run).run();
  const auto checkpoint = load_checkpoint(run.checkpoints());
  auto longer = check_resume(run, checkpoint,
                             {{"--train.epochs", "2", "--train.micro_batch", "4", "--train.warmup_ratio",
                               "0.5", "--train.eval_steps", "-1"},
                              false});
  Trainer trainer(longer.recipe, run, {.resume_from = checkpoint});
  const auto& train = trainer.recipe().train;
  EXPECT_EQ(train.warmup_steps, std::llround(0.5 * static_cast<double>(train.steps)));
  TrainConfig expected;
  expected.steps = train.steps, expected.eval_steps = -1, expected.eval_batches = train.eval_batches;
  resolve_intervals(expected);
  EXPECT_EQ(train.eval_steps, expected.eval_steps);
}

TEST(RunLength, FewUpdatesAreSaid) {
  TrainConfig train;
  train.epochs = 1, train.steps = 1;
  const auto note = few_updates_note(train, 2, 8, 512);
  EXPECT_NE(note.find("The data fill 2 rows of 512 tokens and a step takes 8: 1 update in all"), note.npos)
      << note;
  EXPECT_NE(note.find("train.micro_batch"), note.npos) << note;
  train.steps = 9;
  EXPECT_NE(few_updates_note(train, 1, 1, 0).find("1 batch of pairs"), note.npos);
  train.steps = 10;
  EXPECT_EQ(few_updates_note(train, 80, 8, 512), "");
  train.epochs = 0, train.steps = 3;
  EXPECT_EQ(few_updates_note(train, 2, 8, 512), "") << "so many were asked for";
}

}  // namespace
}  // namespace tightloop::testing
