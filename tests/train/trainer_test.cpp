#include "train/trainer.h"

#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/files.h"
#include "support.h"
#include "train/run/checkpoint.h"
#include "train/small_recipe.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;

Recipe trainer_recipe() {
  Recipe recipe = testing::small_recipe();
  recipe.train.accumulate = 2, recipe.train.warmup_steps = 5;
  return recipe;
}

void expect_same_checkpoint(const RunFolder& a, const RunFolder& b) {
  const auto one = load_checkpoint(a.checkpoints()), two = load_checkpoint(b.checkpoints());
  EXPECT_EQ(one.step, two.step);
  for (const auto& [name, tensor] : one.weights.tensors)
    EXPECT_TRUE(at::equal(tensor, two.weights.tensors.at(name))) << name;
  for (const auto& [name, tensor] : one.optimizer.tensors)
    EXPECT_TRUE(at::equal(tensor, two.optimizer.tensors.at(name))) << name;
}

std::vector<nlohmann::json> metrics_of(const RunFolder& run) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(run.metrics());
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(Trainer, LearnsAndSaves) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  Trainer trainer(trainer_recipe(), run);
  const auto result = trainer.run();
  EXPECT_EQ(result.step, 40);
  EXPECT_FALSE(result.interrupted);
  ASSERT_EQ(result.losses.size(), 10u);
  EXPECT_LT(result.losses.back(), 0.8 * result.losses.front());
  ASSERT_TRUE(result.held_out_loss);
  EXPECT_LT(*result.held_out_loss, result.losses.front());
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{40}));
  for (const auto& path : {run.config(), run.metrics(), run.tokenizer() / "tokenizer.json"})
    EXPECT_TRUE(fs::exists(path)) << path;
}

TEST(Trainer, StoppedAndResumedIsTheSameToTheBit) {
  const TempFolder folder;
  for (const double dropout : {0.0, 0.1}) {
    const auto whole = RunFolder::create(folder / fmt::format("whole{}", dropout), false),
               parts = RunFolder::create(folder / fmt::format("parts{}", dropout), false);
    auto recipe = trainer_recipe();
    recipe.model.dropout = dropout;
    Trainer(recipe, whole).run();
    recipe.train.stop_at = 17;  // not a multiple of anything
    Trainer(recipe, parts).run();
    EXPECT_EQ(load_checkpoint(parts.checkpoints()).step, 17);
    recipe.train.stop_at = 0;
    Trainer resumed(recipe, parts, {.resume_from = load_checkpoint(parts.checkpoints())});
    EXPECT_EQ(resumed.run().step, 40);
    expect_same_checkpoint(whole, parts);
  }
}

TEST(Trainer, LooksAtLossesAsOftenAsToldAndAveragesAlike) {
  const TempFolder folder;
  std::vector<double> means;
  for (const int64_t interval : {1, 10}) {
    auto recipe = testing::small_recipe();
    recipe.train.steps = 1000, recipe.train.micro_batch = 1, recipe.data.seq_len = 12;
    recipe.tasks.questions = 2000;  // less than one epoch
    recipe.train.loss_extract_interval = interval, recipe.train.logging_steps = 100;
    recipe.train.eval_steps = 0;
    Trainer trainer(recipe, RunFolder::create(folder / std::to_string(interval), false));
    means.push_back(trainer.run().mean_loss);
    EXPECT_EQ(trainer.syncs().of("loss_extract"), 1000 / interval);
    EXPECT_LE(trainer.syncs().total() - trainer.syncs().of("loss_extract"), 2) << "one save, one evaluation";
  }
  EXPECT_EQ(means[0], means[1]) << "to the last bit";
}

/// Everything that could be lost between two processes: dropout, accumulation, a mixture, part of an epoch.
Recipe mixed_recipe() {
  auto recipe = trainer_recipe();
  recipe.data.mixture = {"name=one source=tasks cap=60", "name=two source=tasks cap=70"};
  recipe.model.dropout = 0.2, recipe.train.steps = 150;
  return recipe;
}

void expect_resumes_exactly(const Recipe& recipe) {
  const TempFolder folder;
  const auto whole = RunFolder::create(folder / "whole", false),
             parts = RunFolder::create(folder / "parts", false);
  const double mean = Trainer(recipe, whole).run().losses.back();
  auto first = recipe;
  first.train.stop_at = 50;
  Trainer(first, parts).run();
  Trainer resumed(recipe, parts, {.resume_from = load_checkpoint(parts.checkpoints())});
  EXPECT_EQ(resumed.run().losses.back(), mean);
  expect_same_checkpoint(whole, parts);
}

TEST(Trainer, DropoutAccumulationAndMixturesResumeToTheBit) { expect_resumes_exactly(mixed_recipe()); }

class TrainerOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << why_no_cuda();
  }
  static Recipe recipe(Precision precision) {
    auto recipe = mixed_recipe();
    recipe.train.device = "cuda", recipe.train.precision = precision, recipe.train.deterministic = true;
    recipe.train.debug_syncs = true;
    return recipe;
  }
  static std::vector<double> losses(const Recipe& recipe, const RunFolder& run) {
    auto each = recipe;
    each.train.logging_steps = 1;
    return Trainer(each, run).run().losses;
  }
};

TEST_F(TrainerOnGpu, ResumesToTheBit) {
  for (const auto precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    SCOPED_TRACE(precision);
    expect_resumes_exactly(recipe(precision));
  }
}

TEST_F(TrainerOnGpu, LooksAtLossesAsOftenAsToldAndAveragesAlike) {
  const TempFolder folder;
  std::vector<double> means;
  for (const int64_t interval : {1, 10}) {
    auto recipe = this->recipe(Precision::kBf16);
    recipe.train.steps = 1000, recipe.train.loss_extract_interval = interval;
    recipe.data.mixture.clear(), recipe.tasks.questions = 20000;  // less than one epoch
    recipe.train.keep_best = false;
    Trainer trainer(recipe, RunFolder::create(folder / std::to_string(interval), false));
    means.push_back(trainer.run().mean_loss);
    EXPECT_EQ(trainer.syncs().of("loss_extract"), 1000 / interval);
    EXPECT_EQ(trainer.syncs().of("save"), 1);
    EXPECT_EQ(trainer.syncs().of("out_of_memory"), 0);
  }
  EXPECT_EQ(means[0], means[1]);
}

TEST_F(TrainerOnGpu, GraphsChangeNothing) {
  for (const char* family : {"llama", "gpt2", "qwen3_moe", "nanochat"})
    for (const auto optimizer : {OptimizerKind::kAdamw, OptimizerKind::kMuon}) {
      SCOPED_TRACE(::testing::Message() << family << " " << optimizer);
      const TempFolder folder;
      auto with = recipe(Precision::kBf16);
      with.train.steps = 200, with.model.family = family, with.train.optimizer = optimizer;
      with.train.embedding_lr = 0.002, with.train.lr_scale = 0.1;
      if (with.model.family == "nanochat")
        with.model.dropout = 0, with.model.width = 128, with.model.heads = 1;
      auto without = with;
      without.train.graph = AutoSwitch::kOff;
      const auto a = RunFolder::create(folder / "with", false),
                 b = RunFolder::create(folder / "without", false);
      EXPECT_EQ(losses(with, a), losses(without, b));
      expect_same_checkpoint(a, b);
    }
}

TEST_F(TrainerOnGpu, TwoRunsAreTheSameToTheBit) {
  const TempFolder folder;
  auto recipe = this->recipe(Precision::kBf16);
  recipe.train.steps = 200;
  const auto a = RunFolder::create(folder / "a", false), b = RunFolder::create(folder / "b", false);
  EXPECT_EQ(losses(recipe, a), losses(recipe, b));
  expect_same_checkpoint(a, b);
}

TEST_F(TrainerOnGpu, Fp16FollowsFp32) {
  const TempFolder folder;
  std::vector<double> last;
  for (const auto precision : {Precision::kFp32, Precision::kTf32, Precision::kFp16}) {
    auto recipe = this->recipe(precision);
    recipe.model.dropout = 0;
    last.push_back(*Trainer(recipe, RunFolder::create(folder / std::string(name_of(precision)), false))
                        .run()
                        .held_out_loss);
  }
  EXPECT_NEAR(last[1], last[0], 0.05 * last[0]);
  EXPECT_NEAR(last[2], last[0], 0.05 * last[0]);
}

TEST(Trainer, MetricsCountStepsFromOneAndNeverTwice) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = trainer_recipe();
  recipe.train.save_steps = 8, recipe.train.stop_at = 12;
  Trainer(recipe, run).run();
  fs::remove_all(run.checkpoints() /
                 "step-00000012");  // as if it had died before that save: lines 9 to 12 are void
  recipe.train.stop_at = 16;
  Trainer resumed(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())});
  resumed.run();
  std::vector<int64_t> steps;
  for (const auto& line : metrics_of(run)) steps.push_back(line.at("global_step").get<int64_t>());
  EXPECT_EQ(steps, (std::vector<int64_t>{4, 8, 12, 16}));
}

TEST(Trainer, LoggingIntervalDoesNotChangeTheMeanLoss) {
  const TempFolder folder;
  std::vector<double> means;
  for (const int64_t interval : {1, 5, 40}) {
    const auto run = RunFolder::create(folder / std::to_string(interval), false);
    auto recipe = trainer_recipe();
    recipe.train.logging_steps = interval, recipe.data.loss_after = "",
    recipe.data.rows = RowKind::kStream;  // equal counts
    const auto losses = Trainer(recipe, run).run().losses;
    double sum = 0;
    for (const double loss : losses) sum += loss;
    means.push_back(sum / static_cast<double>(losses.size()));
  }
  EXPECT_NEAR(means[1], means[0], 1e-9 * means[0]);
  EXPECT_NEAR(means[2], means[0], 1e-9 * means[0]);
}

TEST(Trainer, Bf16FollowsFp32) {
  const TempFolder folder;
  std::vector<double> last;
  for (const auto precision : {Precision::kFp32, Precision::kBf16}) {
    auto recipe = trainer_recipe();
    recipe.train.precision = precision;
    last.push_back(*Trainer(recipe, RunFolder::create(folder / std::string(name_of(precision)), false))
                        .run()
                        .held_out_loss);
  }
  EXPECT_NEAR(last[1], last[0], 0.05 * last[0]);
}

TEST(Trainer, ALearningRateOfAThousandIsNamed) {
  const TempFolder folder;
  for (const auto optimizer : {OptimizerKind::kAdamw, OptimizerKind::kMuon}) {
    auto recipe = trainer_recipe();
    recipe.train.optimizer = optimizer;
    recipe.train.lr = recipe.train.matrix_lr = recipe.train.embedding_lr = 1e3, recipe.train.warmup_steps = 0;
    Trainer trainer(recipe, RunFolder::create(folder / std::string(name_of(optimizer)), false));
    const auto message = error_of(ExitCode::kFailure, [&] { trainer.run(); });
    EXPECT_NE(message.find("learning rate"), std::string::npos) << message;
  }
}

TEST(Trainer, WeightsThatAreNotNumbersAreNamed) {
  const TempFolder folder;
  Trainer trainer(trainer_recipe(), RunFolder::create(folder / "run", false));
  trainer.model().parameters().all()[1].value.detach()[0] = NAN;
  const auto message = error_of(ExitCode::kFailure, [&] { trainer.run(); });
  EXPECT_NE(message.find("before the first update"), std::string::npos) << message;
}

TEST(Trainer, DataWithNothingToLearnIsNamed) {
  const TempFolder folder;
  auto recipe = trainer_recipe();
  recipe.data.seq_len = 6;  // ends before any answer begins
  Trainer trainer(recipe, RunFolder::create(folder / "run", false));
  const auto message = error_of(ExitCode::kData, [&] { trainer.run(); });
  EXPECT_NE(message.find("loss mask is all zero"), std::string::npos) << message;
}

TEST(Trainer, BatchesWithNothingToLearnAreCountedAndDoNoHarm) {
  const TempFolder folder;
  for (const auto norm : {LossNorm::kGlobal, LossNorm::kMicro}) {
    const auto run = RunFolder::create(folder / std::string(name_of(norm)), false);
    auto recipe = trainer_recipe();
    recipe.data.seq_len = 16, recipe.train.micro_batch = 1;  // some answers are cut off
    recipe.train.loss_norm = norm;
    const auto result = Trainer(recipe, run).run();
    EXPECT_EQ(result.step, 40);
    for (const double loss : result.losses) EXPECT_TRUE(std::isfinite(loss));
    const auto lines = metrics_of(run);
    EXPECT_GT(lines[9].value("training/empty_batches", 0), 0);

    recipe.train.stop_at = 20;
    const auto parts = RunFolder::create(folder / fmt::format("{}-parts", name_of(norm)), false);
    Trainer(recipe, parts).run();
    recipe.train.stop_at = 0;
    Trainer(recipe, parts, {.resume_from = load_checkpoint(parts.checkpoints())}).run();
    const auto resumed = metrics_of(parts);
    for (const char* metric : {"training/empty_batches", "training/skipped_steps"})
      EXPECT_EQ(resumed[9].value(metric, 0), lines[9].value(metric, 0)) << metric;
  }
}

TEST(Trainer, AMixtureShowsALossForEachSource) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = trainer_recipe();
  recipe.data.mixture = {"name=one source=tasks cap=60", "name=two source=tasks cap=70",
                         "name=three source=tasks cap=80"};
  recipe.log.dataset_metrics_steps = 1;
  Trainer(recipe, run).run();
  for (const auto& line : metrics_of(run)) {
    if (!line.contains("training/loss")) continue;
    double least = INFINITY, most = 0;
    for (const char* name : {"one", "two", "three"}) {
      const double loss = line.at(std::string("training/loss/") + name).get<double>();
      least = std::min(least, loss), most = std::max(most, loss);
    }
    EXPECT_LT(least, most);
    EXPECT_LE(least, line.at("training/loss").get<double>()) << "the mean lies between";
    EXPECT_GE(most, line.at("training/loss").get<double>());
  }
}

TEST(Trainer, MuonLearnsAndResumesToTheBit) {
  const TempFolder folder;
  auto recipe = trainer_recipe();
  recipe.train.optimizer = OptimizerKind::kMuon, recipe.train.embedding_lr = 0.002,
  recipe.train.schedule = ScheduleKind::kWsd;
  const auto whole = RunFolder::create(folder / "whole", false),
             parts = RunFolder::create(folder / "parts", false);
  const auto losses = Trainer(recipe, whole).run().losses;
  EXPECT_LT(losses.back(), 0.8 * losses.front());
  recipe.train.stop_at = 11;
  Trainer(recipe, parts).run();
  recipe.train.stop_at = 0;
  Trainer resumed(recipe, parts, {.resume_from = load_checkpoint(parts.checkpoints())});
  resumed.run();
  expect_same_checkpoint(whole, parts);
}

TEST(Trainer, TheChunkedHeadTrainsAlike) {
  const TempFolder folder;
  std::vector<std::vector<double>> losses;
  for (const auto head : {AutoSwitch::kOff, AutoSwitch::kOn}) {
    auto recipe = trainer_recipe();
    recipe.train.fused_head = head;
    losses.push_back(
        Trainer(recipe, RunFolder::create(folder / std::string(name_of(head)), false)).run().losses);
  }
  for (size_t i = 0; i < losses[0].size(); ++i) EXPECT_NEAR(losses[1][i], losses[0][i], 1e-3 * losses[0][i]);
}

TEST(Trainer, AnExplodingLossIsNamed) {
  const TempFolder folder;
  auto recipe = trainer_recipe();
  recipe.train.lr = 1e6, recipe.train.clip = 0, recipe.train.warmup_steps = 0, recipe.model.init_std = 10;
  recipe.train.weight_decay = 100;
  Trainer trainer(recipe, RunFolder::create(folder / "run", false));
  const auto message = error_of(ExitCode::kFailure, [&] { trainer.run(); });
  EXPECT_NE(message.find("learning rate"), std::string::npos) << message;
}

}  // namespace
}  // namespace tightloop
