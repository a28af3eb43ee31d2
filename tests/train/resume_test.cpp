#include <fmt/format.h>

#include "core/files.h"
#include "ops/compare.h"
#include "support.h"
#include "train/run/checkpoint.h"
#include "train/run/resume_check.h"
#include "train/run/resume_settings.h"
#include "train/run/run_settings.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::small_recipe;
using testing::TempFolder;

RunFolder trained(const Recipe& recipe, const fs::path& root) {
  const auto run = RunFolder::create(root, false);
  Trainer(recipe, run).run();
  return run;
}

TEST(Resume, EverySettingThatMayChangeExists) {
  Recipe recipe;
  const std::string yaml = recipe.bind().to_yaml();
  for (const std::string& key : settings_that_may_change()) {
    const size_t dot = key.find('.'), section = yaml.find(key.substr(0, dot) + ":\n");
    EXPECT_NE(yaml.find("  " + key.substr(dot + 1) + ": ", section), std::string::npos) << key;
    EXPECT_FALSE(names_files(key)) << key;
  }
  for (const char* key : {"model.layers", "train.seed", "train.optimizer", "data.seq_len", "lora.rank",
                          "tokenizer.path", "no.such_key"})
    EXPECT_FALSE(may_change(key)) << key;
}

TEST(Resume, ATrainerThatCannotLoadItsCheckpointLeavesTheSettings) {
  const TempFolder folder;
  auto recipe = small_recipe();
  recipe.train.steps = 4;
  const auto run = trained(recipe, folder / "run");
  const std::string before = read_file(run.config());
  recipe.model.layers = 2;
  const auto checkpoint = load_checkpoint(run.checkpoints());
  error_of(ExitCode::kCheckpoint, [&] { Trainer(recipe, run, {.resume_from = checkpoint}); });
  EXPECT_EQ(read_file(run.config()), before);
}

TEST(Resume, IsAskedForAndNeverForgottenInSilence) {
  const TempFolder folder;
  auto recipe = small_recipe();
  recipe.train.steps = 4;
  const auto run = trained(recipe, folder / "run");
  const auto settings = read_file(run.config());
  recipe.train.lr = 0.002;
  const auto message = error_of(ExitCode::kUsage, [&] { Trainer(recipe, run); });
  EXPECT_NE(message.find("has checkpoints already"), std::string::npos) << message;
  EXPECT_EQ(read_file(run.config()), settings) << "which the checkpoints are compared with";
}

TEST(Resume, AnotherMicroBatchGoesOnWithTheNextRows) {
  const TempFolder folder;
  auto recipe = small_recipe();
  recipe.train.steps = 60;  // more than one pass over 400 rows
  const auto whole = trained(recipe, folder / "whole");
  recipe.train.stop_at = 17;
  const auto parts = trained(recipe, folder / "parts");
  EXPECT_EQ(load_checkpoint(parts.checkpoints()).metadata.at("consumed"), 17 * 8);
  // The same 8 rows a step, cut otherwise: the same gradients but for rounding.
  recipe.train.micro_batch = 2, recipe.train.accumulate = 4, recipe.train.stop_at = 33;
  {
    Trainer resumed(recipe, parts, {.resume_from = load_checkpoint(parts.checkpoints())});
    resumed.run();
  }
  EXPECT_EQ(load_checkpoint(parts.checkpoints()).metadata.at("consumed"), 33 * 8);
  recipe.train.micro_batch = 8, recipe.train.accumulate = 1, recipe.train.stop_at = 0;
  Trainer resumed(recipe, parts, {.resume_from = load_checkpoint(parts.checkpoints())});
  resumed.run();
  const auto wanted = load_checkpoint(whole.checkpoints()), got = load_checkpoint(parts.checkpoints());
  EXPECT_EQ(got.metadata.at("consumed"), 60 * 8);
  for (const auto& [name, tensor] : wanted.weights.tensors)
    EXPECT_LT(testing::relative_error(got.weights.tensors.at(name), tensor), 1e-3) << name;
}

TEST(Resume, ASmallerStepTakesNoRowTwice) {
  const TempFolder folder;
  auto recipe = small_recipe();
  recipe.train.steps = 20, recipe.train.stop_at = 10;
  const auto run = trained(recipe, folder / "run");
  recipe.train.micro_batch = 3, recipe.train.stop_at = 0;
  Trainer resumed(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())});
  resumed.run();
  EXPECT_EQ(load_checkpoint(run.checkpoints()).metadata.at("consumed"), 10 * 8 + 10 * 3);
}

// As they were before checkpoints counted rows and evaluations.
TEST(Resume, AnOldCheckpointGoesOnAfterTheRowsOfItsOwnSettings) {
  const TempFolder folder;
  auto recipe = small_recipe();
  recipe.train.steps = 20, recipe.train.stop_at = 10, recipe.train.eval_steps = 10;
  const auto run = trained(recipe, folder / "run");
  update_metadata(run.checkpoints(), 10, {{"best", {{"step", 10}, {"loss", 0.1}}}});
  recipe.train.micro_batch = 4, recipe.train.stop_at = 0, recipe.train.patience = 1;
  Trainer resumed(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())});
  EXPECT_EQ(resumed.run().step, 20) << "the evaluation of step 10 is not made, and counted, again";
  EXPECT_EQ(load_checkpoint(run.checkpoints()).metadata.at("consumed"), 10 * 8 + 10 * 4);
}

TEST(Resume, SettingsOfOneThatComesToNothingDoNotStay) {
  const TempFolder folder;
  auto recipe = small_recipe();
  recipe.train.steps = 20, recipe.train.stop_at = 10;
  const auto run = trained(recipe, folder / "run");
  const std::string before = read_file(run.config());
  recipe.train.stop_at = 0, recipe.train.lr = 1e6;
  Trainer resumed(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())});
  error_of(ExitCode::kFailure, [&] { resumed.run(); });
  EXPECT_EQ(read_file(run.config()), before);
}

TEST(Resume, FilesThatAreNoTokenizerDecideNoIds) {
  const TempFolder folder;
  auto recipe = small_recipe();
  recipe.train.steps = 4, recipe.train.stop_at = 2;
  const auto run = trained(recipe, folder / "run");
  write_file_whole(run.tokenizer() / ".DS_Store", "x");
  write_file_whole(run.tokenizer() / "tokenizer.json.partial-1-2-3", "x");
  check_resume(run, load_checkpoint(run.checkpoints()), {});
  write_file_whole(run.tokenizer() / "tokenizer_config.json", "{}");
  error_of(ExitCode::kCheckpoint, [&] { check_resume(run, load_checkpoint(run.checkpoints()), {}); });
}

TEST(Resume, AnotherPrecisionGoesOnFromTheSameWeights) {
  const TempFolder folder;
  auto recipe = small_recipe();
  recipe.train.steps = 8;
  const auto run = trained(recipe, folder / "run");
  for (const auto precision : {Precision::kFp16, Precision::kBf16, Precision::kFp32, Precision::kFp16}) {
    recipe.train.precision = precision, recipe.train.steps += 2;
    Trainer resumed(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())});
    EXPECT_EQ(resumed.run().step, recipe.train.steps) << precision;
  }
}

TEST(Resume, ConfigKnowsItsChecksum) {
  const TempFolder folder;
  auto recipe = small_recipe();
  recipe.train.steps = 4, recipe.train.stop_at = 2;
  const auto run = trained(recipe, folder / "run");
  const auto checkpoint = load_checkpoint(run.checkpoints());
  EXPECT_TRUE(check_resume(run, checkpoint, {}).nothing_to_do.find("train.stop_at 0") != std::string::npos);
  const auto resumption = check_resume(run, checkpoint, {{"--train.stop_at", "0", "--train.lr=0.5"}, false});
  EXPECT_TRUE(resumption.nothing_to_do.empty());
  ASSERT_GE(resumption.notes.size(), 2u);
  EXPECT_EQ(resumption.notes[0], "train.lr: was 0.01, is 0.5");
  EXPECT_NE(resumption.notes.back().find("The learning rate goes up"), std::string::npos)
      << resumption.notes.back();

  // The program itself may have written other settings since the checkpoint; nobody else may.
  auto changed = resumption.recipe;
  write_settings(run, changed);
  EXPECT_EQ(check_resume(run, checkpoint, {}).recipe.train.lr, 0.5);
  changed.train.seed = 5;
  write_settings(run, changed);
  const auto why = error_of(ExitCode::kUsage, [&] { check_resume(run, checkpoint, {}); });
  EXPECT_NE(why.find("train.seed: was 1337, is 5"), std::string::npos) << why;
  EXPECT_EQ(why.find("train.lr"), std::string::npos) << why;
}

TEST(Resume, AMixtureMayNameOtherFilesButNothingElse) {
  const TempFolder folder;
  write_file_whole(folder / "a.jsonl", "{\"text\": \"one two three four five six seven\"}\n");
  const auto entry = [&](const char* file, const char* more) {
    return fmt::format("name=a source=jsonl train={} {}", (folder / file).string(), more);
  };
  auto recipe = small_recipe();
  recipe.data.loss_after = "", recipe.data.holdout = 0;
  recipe.data.mixture = {entry("a.jsonl", "epochs=3"), "name=b source=tasks cap=70"};
  recipe.train.steps = 4, recipe.train.stop_at = 2;
  const auto run = trained(recipe, folder / "run");
  const auto checkpoint = load_checkpoint(run.checkpoints());
  fs::rename(folder / "a.jsonl", folder / "b.jsonl");
  const auto with = [&](const std::string& first) {
    return ResumeOptions{{"--train.stop_at", "0", "--data.mixture", first + ",name=b source=tasks cap=70"},
                         false};
  };
  EXPECT_EQ(check_resume(run, checkpoint, with(entry("b.jsonl", "epochs=3"))).notes.size(), 3u);
  error_of(ExitCode::kUsage, [&] { check_resume(run, checkpoint, with(entry("b.jsonl", "epochs=2"))); });
}

TEST(Resume, OtherDocumentsOfTheSameFilesAreRefused) {
  const TempFolder folder;
  auto recipe = small_recipe();
  recipe.train.steps = 4, recipe.train.stop_at = 2;
  const auto run = trained(recipe, folder / "run");
  auto checkpoint = load_checkpoint(run.checkpoints());
  EXPECT_EQ(checkpoint.metadata.at("documents").at("train").at("documents"), 400);
  EXPECT_GT(checkpoint.metadata.at("documents").at("val").at("tokens"), 0);
  const Trainer again(recipe, run, {.resume_from = checkpoint});
  nlohmann::json now = again.metadata();
  EXPECT_TRUE(check_counts(run, checkpoint, now, {}).empty());

  now["documents"]["train"]["documents"] = 399;
  const auto why = error_of(ExitCode::kData, [&] { check_counts(run, checkpoint, now, {}); });
  EXPECT_NE(why.find("documents of train: were 400, are 399"), std::string::npos) << why;
  EXPECT_EQ(check_counts(run, checkpoint, now, {{}, true}).size(), 1u);

  checkpoint.metadata.erase("documents");
  EXPECT_TRUE(check_counts(run, checkpoint, now, {}).empty());
  now["documents"]["bad"] = 1;
  EXPECT_EQ(check_counts(run, checkpoint, now, {}).size(), 1u);
}

TEST(Resume, ARateThatRisesAsPlannedIsNotMentioned) {
  const TempFolder folder;
  auto recipe = small_recipe();
  recipe.train.steps = 40, recipe.train.warmup_steps = 30, recipe.train.stop_at = 20;
  const auto run = trained(recipe, folder / "run");
  const auto checkpoint = load_checkpoint(run.checkpoints());
  const auto said = [&](const char* rate) {
    const auto notes =
        check_resume(run, checkpoint, {{"--train.stop_at=0", "--train.lr", rate}, false}).notes;
    return notes.back().find("The learning rate goes up") != std::string::npos;
  };
  EXPECT_FALSE(said("0.0099"));
  EXPECT_TRUE(said("0.0101"));
}

}  // namespace
}  // namespace tightloop
