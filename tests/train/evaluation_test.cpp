#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <signal.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/files.h"
#include "core/interrupt.h"
#include "dist/several.h"
#include "support.h"
#include "train/run/checkpoint.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::expect_success;
using testing::in_child;
using testing::small_recipe;
using testing::TempFolder;

Task::Evaluation planted_failure() { throw std::runtime_error("planted"); }

/// Nothing improves after the first evaluation, at step 2.
Recipe stale_recipe() {
  auto recipe = small_recipe();
  recipe.train.lr = 1e-30, recipe.train.min_lr = 1, recipe.train.weight_decay = 0;
  recipe.train.precision = Precision::kBf16;  // values round to what they were
  recipe.train.eval_steps = 2, recipe.train.patience = 3;
  return recipe;
}

TEST(Evaluation, AHeldOutPartShorterThanARowDoesNotLoseTheRun) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "Document " + std::to_string(i) + " says that the cat sat.\n\n";
  write_file_whole(folder / "text", text);
  auto recipe = small_recipe();
  recipe.data.source = DataSource::kText, recipe.data.rows = RowKind::kStream, recipe.data.loss_after = "";
  recipe.data.documents = DocumentEnd::kBlankLine, recipe.data.train = {(folder / "text").string()};
  recipe.data.seq_len = 256, recipe.train.steps = 6, recipe.train.eval_steps = 2;
  const auto run = RunFolder::create(folder / "run", false);
  const auto result = Trainer(recipe, run).run();
  EXPECT_EQ(result.step, 6);
  EXPECT_FALSE(result.held_out_loss);
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{6}));
}

TEST(Evaluation, HeldOutPairsThatAreAllTooLongDoNotLoseTheRun) {
  const TempFolder folder;
  std::string train, val, side;
  for (int i = 0; i < 60; ++i) train += "one " + std::to_string(i) + "\teins " + std::to_string(i) + "\n";
  for (int i = 0; i < 40; ++i) side += "one eins ";
  for (int i = 0; i < 4; ++i) val += side + "\t" + side + std::to_string(i) + "\n";
  write_file_whole(folder / "train.tsv", train), write_file_whole(folder / "val.tsv", val);
  Recipe recipe = small_recipe();
  recipe.data = {};
  recipe.data.source = DataSource::kPairs, recipe.data.seq_len = 24, recipe.data.batch_tokens = 256;
  recipe.data.train = {(folder / "train.tsv").string()}, recipe.data.val = {(folder / "val.tsv").string()};
  recipe.tokenizer.type = TokenizerType::kUnigram, recipe.tokenizer.vocab_size = 20,
  recipe.model.family = "seq2seq";
  recipe.train.steps = 4;
  const auto run = RunFolder::create(folder / "run", false);
  const auto result = Trainer(recipe, run).run();
  EXPECT_FALSE(result.held_out_loss);
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{4}));
}

TEST(Evaluation, WithoutASupervisedTokenThereIsNoLossOfZero) {
  const TempFolder folder;
  std::string train, val;
  for (int i = 0; i < 60; ++i) train += "say " + std::to_string(i) + " = " + std::to_string(i) + "\n\n";
  for (int i = 0; i < 9; ++i) val += std::string(40, 'x') + " = " + std::to_string(i) + "\n\n";  // cut off
  write_file_whole(folder / "train", train), write_file_whole(folder / "val", val);
  auto recipe = small_recipe();
  recipe.data.source = DataSource::kText, recipe.data.documents = DocumentEnd::kBlankLine;
  recipe.data.train = {(folder / "train").string()}, recipe.data.val = {(folder / "val").string()};
  recipe.train.steps = 4;
  EXPECT_FALSE(Trainer(recipe, RunFolder::create(folder / "run", false)).run().held_out_loss);
}

TEST(Evaluation, AFailureIsNotTheEndOfTheRun) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = small_recipe();
  recipe.train.eval_steps = 4, recipe.train.steps = 10, recipe.train.keep_best = false;
  Trainer trainer(recipe, run);
  trainer.also_evaluate(planted_failure);
  const auto result = trainer.run();
  EXPECT_EQ(result.step, 10);
  EXPECT_TRUE(result.held_out_loss) << "that much was measured";
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{10}));
}

TEST(Evaluation, TheLastStepIsSavedBefore) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = small_recipe();
  recipe.train.steps = 4;
  Trainer trainer(recipe, run);
  std::vector<int64_t> saved;
  trainer.also_evaluate([&]() -> Task::Evaluation {
    saved = checkpoint_steps(run.checkpoints());
    return {};
  });
  trainer.run();
  EXPECT_EQ(saved, (std::vector<int64_t>{4}));
}

// Saving it again would have to remove the first one.
TEST(Evaluation, TheBestStepIsSavedOnceAndBefore) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = small_recipe();
  recipe.train.steps = 12, recipe.train.eval_steps = 4, recipe.train.keep_best = true;
  recipe.train.keep_checkpoints = 1;
  Trainer trainer(recipe, run);
  const auto written = [&](int64_t step) {
    return fs::last_write_time(run.checkpoints() / fmt::format("step-{:08}/model.safetensors", step));
  };
  std::vector<fs::file_time_type> before;
  trainer.also_evaluate([&]() -> Task::Evaluation {
    const auto steps = checkpoint_steps(run.checkpoints());
    EXPECT_EQ(steps.back(), 4 * static_cast<int64_t>(before.size() + 1)) << "saved before it is evaluated";
    before.push_back(written(steps.back()));
    return {};
  });
  trainer.run();
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{12})) << "the best is the newest";
  ASSERT_EQ(before.size(), 3u);
  EXPECT_EQ(written(12), before[2]);
  EXPECT_EQ(load_checkpoint(run.checkpoints()).metadata.at("best").at("step"), 12);
}

TEST(Evaluation, PatienceIsRestoredOnResume) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = stale_recipe();
  recipe.train.stop_at = 5;
  Trainer(recipe, run).run();
  recipe.train.stop_at = 0;
  Trainer resumed(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())});
  const auto result = resumed.run();
  EXPECT_TRUE(result.stopped_early);
  EXPECT_EQ(result.step, 8) << "best at 2, then three evaluations";
}

TEST(Evaluation, PatienceIsRestoredAfterAnEvaluationAtTheSameStep) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = stale_recipe();
  recipe.train.stop_at = 6;  // evaluated after its save
  Trainer(recipe, run).run();
  recipe.train.stop_at = 0;
  Trainer resumed(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())});
  EXPECT_EQ(resumed.run().step, 8);
}

TEST(Evaluation, AnInterruptedOneIsMadeUpForOnResume) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = small_recipe();
  recipe.train.steps = 4;
  catch_interrupts();
  {
    Trainer trainer(recipe, run);
    trainer.also_evaluate([]() -> Task::Evaluation {
      ::raise(SIGINT);
      return {};
    });
    const auto result = trainer.run();
    EXPECT_TRUE(result.interrupted);
    EXPECT_EQ(result.step, 4);
    EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{4}));
  }
  clear_interrupt();
  Trainer resumed(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())});
  const auto result = resumed.run();
  EXPECT_FALSE(result.interrupted);
  EXPECT_TRUE(result.held_out_loss);
  Trainer again(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())});
  EXPECT_FALSE(again.run().held_out_loss) << "it was evaluated";
}

TEST(SeveralProcesses, AnEvaluationThatFailsOnOneIsNotTheEndOfTheRun) {
  if (!in_child()) return expect_success(2);
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  auto recipe = small_recipe();
  recipe.train.steps = 8, recipe.train.micro_batch = 4, recipe.train.eval_steps = 2;
  Processes processes;  // once: a second rendezvous at the same port could meet the first one's closing store
  for (const int failing : {0, 1}) {
    const auto path = folder / std::to_string(failing);
    Trainer trainer(recipe, processes.main() ? RunFolder::create(path, false) : RunFolder(path),
                    {.processes = &processes});
    trainer.also_evaluate([&]() -> Task::Evaluation {
      if (processes.rank() == failing) return planted_failure();
      return {};
    });
    const auto result = trainer.run();
    EXPECT_EQ(result.step, 8);
    EXPECT_TRUE(result.held_out_loss);
  }
}

TEST(SeveralProcesses, PatienceIsTheMainProcessesDecision) {
  if (!in_child()) return expect_success(2);
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  auto recipe = stale_recipe();
  Processes processes;
  if (!processes.main()) recipe.train.patience = 100;
  const auto run = processes.main() ? RunFolder::create(folder / "run", false) : RunFolder(folder / "run");
  const auto result = Trainer(recipe, run, {.processes = &processes}).run();
  EXPECT_TRUE(result.stopped_early);
  EXPECT_EQ(result.step, 8);
}

/// The line of the only evaluation in a run.
nlohmann::json evaluation_of(const RunFolder& run) {
  std::ifstream text(run.metrics());
  for (std::string line; std::getline(text, line);)
    if (auto json = nlohmann::json::parse(line); json.contains("eval/loss")) {
      json.erase("time");
      return json;
    }
  return {};
}

TEST(SeveralProcesses, AHeldOutLossHasTheSameBitsInAnyNumberOfThem) {
  struct Data {
    const char* name;
    std::function<void(Recipe&)> change;
  };
  const std::vector<Data> all{
      {"all", [](Recipe& recipe) { recipe.train.eval_batches = 0; }},
      {"five", [](Recipe& recipe) { recipe.train.eval_batches = 5; }},
      {"fewer than processes", [](Recipe& recipe) { recipe.train.eval_batches = 2; }},
      {"packed",
       [](Recipe& recipe) {
         recipe.data.loss_after = "", recipe.data.rows = RowKind::kPack, recipe.data.seq_len = 40;
         recipe.train.eval_batches = 0;
       }},
      {"pairs",
       [](Recipe& recipe) {
         recipe.data = {};
         recipe.data.source = DataSource::kToyPairs, recipe.data.seq_len = 32, recipe.data.batch_tokens = 64;
         recipe.tokenizer.type = TokenizerType::kUnigram, recipe.tokenizer.vocab_size = 120;
         recipe.model.family = "seq2seq";
       }},
  };
  if (in_child()) {
    const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
    Processes processes;
    for (const auto& data : all) {
      auto recipe = small_recipe();
      recipe.train.steps = 1, recipe.train.micro_batch = 3, recipe.train.lr = 0;  // as the weights were made
      data.change(recipe);
      const auto path = folder / fmt::format("{} {}", data.name, processes.world());
      Trainer trainer(recipe, processes.main() ? RunFolder::create(path, false) : RunFolder(path),
                      {.processes = &processes});
      const auto result = trainer.run();
      ASSERT_TRUE(result.held_out_loss) << data.name;
      write_file_whole(folder / fmt::format("{} {} {}", data.name, processes.world(), processes.rank()),
                       fmt::format("{:a}", *result.held_out_loss));
    }
    return;
  }
  const TempFolder folder;
  for (const int world : {1, 2, 4}) expect_success(folder, world);
  if (HasFailure()) return;
  for (const auto& data : all) {
    const auto wanted = evaluation_of(RunFolder(folder / fmt::format("{} 1", data.name)));
    ASSERT_TRUE(wanted.contains("eval/accuracy")) << data.name;
    EXPECT_EQ(wanted.contains("eval/bits_per_byte"), std::string(data.name) != "pairs");
    for (const int world : {2, 4}) {
      EXPECT_EQ(evaluation_of(RunFolder(folder / fmt::format("{} {}", data.name, world))), wanted)
          << data.name;
      for (int rank = 0; rank < world; ++rank)
        EXPECT_EQ(read_file(folder / fmt::format("{} {} {}", data.name, world, rank)),
                  read_file(folder / fmt::format("{} 1 0", data.name)))
            << data.name << ", all know it";
    }
  }
}

TEST(SeveralProcesses, WhatIsSplitIsAddedUpUnlessAShareFails) {
  if (!in_child()) return expect_success(3);
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  auto recipe = small_recipe();
  recipe.train.steps = 2, recipe.train.micro_batch = 4;
  Processes processes;
  for (const int failing : {-1, 0, 2}) {
    const auto path = folder / std::to_string(failing);
    const RunFolder run = processes.main() ? RunFolder::create(path, false) : RunFolder(path);
    Trainer trainer(recipe, run, {.processes = &processes});
    trainer.also_evaluate(SplitMeasure{.count = [&](int rank, int world) -> std::vector<int64_t> {
                                         if (rank == failing) planted_failure();
                                         return {rank + 1, world};
                                       },
                                       .values = [](const std::vector<int64_t>& counts) -> Task::Evaluation {
                                         return {{"eval/bleu", counts.at(0)}, {"eval/chrf", counts.at(1)}};
                                       }});
    const auto result = trainer.run();
    EXPECT_EQ(result.step, 2);
    EXPECT_TRUE(result.held_out_loss);
    if (!processes.main()) continue;
    const auto found = evaluation_of(run);
    EXPECT_EQ(found.contains("eval/bleu"), failing < 0) << found;
    if (failing < 0) {
      EXPECT_EQ(found.at("eval/bleu"), 1 + 2 + 3);
      EXPECT_EQ(found.at("eval/chrf"), 3 * 3);
    }
  }
}

// Its peers have nothing from it and must not wait for it.
TEST(SeveralProcesses, ASignalToOneThatEvaluatesStopsAllAndTheEvaluationIsOwed) {
  if (!in_child()) return expect_success(3);
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  catch_interrupts();
  auto recipe = small_recipe();
  recipe.train.steps = 4, recipe.train.micro_batch = 4, recipe.train.eval_steps = 2;
  Processes processes;
  const RunFolder run =
      processes.main() ? RunFolder::create(folder / "run", false) : RunFolder(folder / "run");
  Trainer trainer(recipe, run, {.processes = &processes});
  trainer.also_evaluate(SplitMeasure{.count = [](int rank, int) -> std::vector<int64_t> {
                                       if (rank == 2) ::raise(SIGTERM);
                                       throw_if_interrupted();
                                       return {1};
                                     },
                                     .values = [](const auto&) { return Task::Evaluation(); }});
  const auto result = trainer.run();
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.step, 2);
  EXPECT_FALSE(result.held_out_loss);
  if (!processes.main()) return;  // which has saved
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{2}));
  EXPECT_NE(load_checkpoint(run.checkpoints()).metadata.value("evaluated", 0), 2);
}

/// A task that has nothing but an evaluation.
class EvaluatedTask : public Task {
 public:
  explicit EvaluatedTask(int failing) : failing_(failing) {}
  HeldOutSums evaluate(int rank, int world) override {
    if (rank == failing_) throw std::runtime_error("planted");
    HeldOutSums sums(6, at::kCPU);
    for (int64_t batch = rank; batch < 6; batch += world)
      sums.add(batch, at::full({}, 0.1 * static_cast<double>(batch + 1), at::kDouble),
               at::full({}, 2, at::kLong), 4, 0);
    return sums;
  }
  std::string why_no_evaluation() const override { return {}; }

  const ModelConfig& config() const override { return config_; }
  Parameters& trained() override { throw std::logic_error("not for this test"); }
  void move_to(at::Device, at::ScalarType) override {}
  const std::vector<std::string>& sources() const override { return sources_; }
  std::string description() const override { return {}; }
  int64_t positions() const override { return 0; }
  int64_t samples() const override { return 0; }
  uint64_t epoch_samples() override { return 0; }
  void open(int64_t, int64_t, int, int) override {}
  Staged next(bool) override { return {}; }
  Staged again(int64_t) override { return {}; }
  std::vector<std::string> origins(int64_t) const override { return {}; }
  double waited() const override { return 0; }
  QueueDepth depth() const override { return {}; }
  BatchLoss loss(const std::vector<at::Tensor>&, const at::Tensor&, bool) override { return {}; }
  double flops_per_token() const override { return 0; }

 private:
  int failing_;
  ModelConfig config_;
  std::vector<std::string> sources_;
};

TEST(SeveralProcesses, ALossThatOneCannotMeasureIsMissingInAll) {
  if (!in_child()) return expect_success(3);
  Processes processes;
  for (const int failing : {0, 2, -1}) {
    EvaluatedTask task(failing);
    Evaluator evaluator(task, device("cpu"), processes);
    evaluator.check();
    const auto found = evaluator.measure(7);
    EXPECT_FALSE(found.interrupted);
    ASSERT_EQ(found.values.has_value(), failing < 0);
    if (failing >= 0) continue;
    double sum = 0;
    for (int64_t batch = 0; batch < 6; ++batch) sum += 0.1 * static_cast<double>(batch + 1);
    EXPECT_EQ(found.values->at(0).second, sum / 24) << "added up in the order of batches";
    EXPECT_EQ(found.values->at(1).second, 0.5);
  }
}

}  // namespace
}  // namespace tightloop
