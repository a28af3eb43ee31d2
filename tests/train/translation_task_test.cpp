#include "train/engine/translation_task.h"

#include <ATen/ops/equal.h>

#include "support.h"
#include "train/run/checkpoint.h"
#include "train/trainer.h"

namespace tightloop {
namespace {

using testing::TempFolder;

Recipe toy() {
  Recipe recipe;
  recipe.data.source = DataSource::kToyPairs, recipe.data.seq_len = 32, recipe.data.batch_tokens = 256;
  recipe.tasks.questions = 600, recipe.tasks.held_out = 30;
  recipe.tokenizer.type = TokenizerType::kUnigram, recipe.tokenizer.vocab_size = 120;
  recipe.model.family = "seq2seq", recipe.model.layers = 1, recipe.model.width = 32, recipe.model.heads = 2;
  recipe.model.dropout = 0.1;
  recipe.train.device = "cpu", recipe.train.precision = Precision::kFp32, recipe.train.threads = 1;
  recipe.train.steps = 40, recipe.train.lr = 1e-2, recipe.train.logging_steps = 4;
  recipe.train.label_smoothing = 0.1;
  return recipe;
}

TEST(TranslationTask, LearnsAndResumesToTheBit) {
  for (const auto smoothing : {Smoothing::kUniform, Smoothing::kKullbackLeibler}) {
    const TempFolder folder;
    auto recipe = toy();
    recipe.train.smoothing = smoothing, recipe.train.accumulate = 2;
    const auto whole = RunFolder::create(folder / "whole", false),
               parts = RunFolder::create(folder / "parts", false);
    const auto losses = Trainer(recipe, whole).run().losses;
    EXPECT_LT(losses.back(), 0.8 * losses.front()) << smoothing;
    auto first = recipe;
    first.train.stop_at = 17;
    Trainer(first, parts).run();
    Trainer resumed(recipe, parts, {.resume_from = load_checkpoint(parts.checkpoints())});
    resumed.run();
    const auto a = load_checkpoint(whole.checkpoints()), b = load_checkpoint(parts.checkpoints());
    for (const auto& [name, tensor] : a.weights.tensors)
      EXPECT_TRUE(at::equal(tensor, b.weights.tensors.at(name))) << name;
  }
}

TEST(TranslationTask, TheMeanLossDoesNotDependOnHowOftenOneLooks) {
  const TempFolder folder;
  std::vector<double> means;
  for (const int64_t interval : {1, 10}) {
    auto recipe = toy();
    recipe.train.loss_extract_interval = interval, recipe.data.batch_tokens = 64;
    Trainer trainer(recipe, RunFolder::create(folder / std::to_string(interval), false));
    means.push_back(trainer.run().mean_loss);
    EXPECT_EQ(trainer.syncs().of("loss_extract"), 40 / interval);
  }
  EXPECT_EQ(means[0], means[1]);
}

TEST(TranslationTask, GivesItsHeldOutPairsAndIsNoLanguageModel) {
  const TempFolder folder;
  Trainer trainer(toy(), RunFolder::create(folder / "run", false));
  const auto held_out = trainer.task().held_out_pairs();
  ASSERT_TRUE(held_out);
  EXPECT_EQ(held_out->pairs.size(), 2u * 30);
  EXPECT_EQ(held_out->model.config().vocab_size, trainer.task().config().vocab_size);
  testing::error_of(ExitCode::kUsage, [&] { trainer.model(); });
  testing::error_of(ExitCode::kUsage, [&] { trainer.tokenizer(); });
}

TEST(Trainer, StopsWhenTheHeldOutLossNoLongerFallsAndKeepsTheBest) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = toy();
  recipe.train.lr = 1e-30, recipe.train.eval_steps = 2, recipe.train.patience = 3;  // nothing will improve
  recipe.train.min_lr = 1, recipe.train.keep_best = true, recipe.train.keep_checkpoints = 1;
  recipe.train.weight_decay = 0, recipe.train.precision = Precision::kBf16;  // values round to what they were
  const auto result = Trainer(recipe, run).run();
  EXPECT_TRUE(result.stopped_early);
  EXPECT_FALSE(result.interrupted);
  EXPECT_EQ(result.step, 8) << "best at 2, then three evaluations";
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(load_checkpoint(run.checkpoints()).metadata["best"]["step"], 2);
}

}  // namespace
}  // namespace tightloop
