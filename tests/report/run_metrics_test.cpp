// What whole runs write to metrics.jsonl, against slow references.
#include <ATen/TensorOperators.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>

#include "core/files.h"
#include "data/dataset.h"
#include "dist/several.h"
#include "support.h"
#include "train/run/checkpoint.h"
#include "train/settings/loading.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop::testing {
namespace {

using Lines = std::vector<nlohmann::json>;

Lines lines_in(const fs::path& file) {
  Lines lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

/// Without evaluations.
Lines training_lines(const RunFolder& run) {
  Lines lines;
  for (auto& line : lines_in(run.metrics()))
    if (line.contains("training/loss")) lines.push_back(std::move(line));
  return lines;
}

/// Some passes over little data, every step a line. All of the text is learned, so that steps have equally
/// many tokens.
Recipe passes_recipe() {
  auto recipe = small_recipe();
  recipe.data.rows = RowKind::kStream, recipe.data.loss_after = "";
  recipe.tasks.questions = 60;
  recipe.train.logging_steps = 1, recipe.train.eval_steps = 0;
  return recipe;
}

// A kill right after an evaluation must not leave a checkpoint that counts as evaluated, and no line of it.
TEST(RunMetrics, AnEvaluationIsInTheFileBeforeAnythingCountsOnIt) {
  const TempFolder folder;
  auto recipe = small_recipe();
  recipe.train.steps = 4, recipe.train.eval_steps = 2, recipe.log.flush_steps = 0;
  const auto run = RunFolder::create(folder / "run", false);
  Trainer trainer(recipe, run);
  int evaluations = 0;
  trainer.also_sample([&]() -> std::vector<TrainingSample> {  // asked right after the evaluation was kept
    EXPECT_TRUE(lines_in(run.metrics()).back().contains("eval/loss"));
    ++evaluations;
    return {};
  });
  trainer.run();
  EXPECT_EQ(evaluations, 2);
}

TEST(RunMetrics, MeanLossesOfTheRunAndOfEachEpoch) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  Trainer(passes_recipe(), run).run();
  double sum = 0, epoch_sum = 0, epoch_seconds = 0, epoch = 0;
  int64_t steps = 0, epoch_steps = 0, epochs = 0;
  for (const auto& line : training_lines(run)) {
    sum += line.at("training/loss").get<double>(), ++steps;
    epoch_sum += line.at("training/loss").get<double>(), ++epoch_steps;
    EXPECT_NEAR(line.at("training/mean_loss").get<double>(), sum / static_cast<double>(steps), 1e-9);
    const bool ended = std::floor(line.at("training/epoch").get<double>()) > std::floor(epoch);
    epoch = line.at("training/epoch").get<double>();
    EXPECT_EQ(line.contains("training/epoch_loss"), ended) << line;
    if (!ended) continue;
    EXPECT_NEAR(line.at("training/epoch_loss").get<double>(), epoch_sum / static_cast<double>(epoch_steps),
                1e-9);
    EXPECT_GT(line.at("training/epoch_seconds").get<double>(), 0);
    epoch_sum = epoch_seconds = 0, epoch_steps = 0, ++epochs;
  }
  EXPECT_GE(epochs, 3);
}

TEST(RunMetrics, ALineThatCoversTheEndOfAnEpochTellsOfIt) {
  const TempFolder folder;
  const auto each = RunFolder::create(folder / "each", false),
             seldom = RunFolder::create(folder / "seldom", false);
  auto recipe = passes_recipe();
  Trainer(recipe, each).run();
  recipe.train.logging_steps = 40;
  Trainer(recipe, seldom).run();
  double last = 0;
  for (const auto& line : training_lines(each)) last = line.value("training/epoch_loss", last);
  const auto lines = training_lines(seldom);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].at("training/epoch_loss").get<double>(), last) << "the last of several";
}

TEST(RunMetrics, AResumedRunTellsTheSameMeans) {
  const TempFolder folder;
  const auto whole = RunFolder::create(folder / "whole", false),
             parts = RunFolder::create(folder / "parts", false);
  auto recipe = passes_recipe();
  Trainer(recipe, whole).run();
  recipe.train.stop_at = 17;
  Trainer(recipe, parts).run();
  recipe.train.stop_at = 0;
  const auto checkpoint = load_checkpoint(parts.checkpoints());
  const double passes = checkpoint.metadata.at("totals").at("passes");
  EXPECT_NE(passes, std::floor(passes)) << "in the middle of an epoch";
  Trainer(recipe, parts, {.resume_from = checkpoint}).run();
  const auto wanted = training_lines(whole), lines = training_lines(parts);
  ASSERT_EQ(lines.size(), wanted.size());
  for (size_t i = 0; i < lines.size(); ++i)
    for (const char* metric : {"training/mean_loss", "training/epoch_loss", "training/bits_per_byte"})
      EXPECT_EQ(lines[i].value(metric, nlohmann::json()), wanted[i].value(metric, nlohmann::json()))
          << metric << " of line " << i << ", to the last bit";
}

TEST(RunMetrics, ACheckpointWithoutTotalsLeavesOutWhatIsNotKnown) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = passes_recipe();
  recipe.train.stop_at = 19;
  Trainer(recipe, run).run();
  recipe.train.stop_at = 0;
  auto old = load_checkpoint(run.checkpoints());
  old.metadata.erase("totals");
  Trainer(recipe, run, {.resume_from = old}).run();
  const auto lines = training_lines(run);
  EXPECT_FALSE(lines.back().contains("training/mean_loss"));
  int64_t ends = 0, told = 0;
  for (size_t i = 19; i < lines.size(); ++i) {
    const auto epoch = [&](size_t line) {
      return std::floor(lines[line].at("training/epoch").get<double>());
    };
    ends += epoch(i) > epoch(i - 1), told += lines[i].contains("training/epoch_loss");
  }
  EXPECT_GE(ends, 2);
  EXPECT_EQ(told, ends - 1) << "all but the one whose beginning is not known";
}

/// Bytes of the supervised targets, each by itself, as the tokenizer spells them.
int64_t spelled_bytes(const Batch& batch, const Tokenizer& tokenizer) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < batch.rows * batch.length; ++i) {
    const int32_t id = batch.targets[i];
    if (batch.loss_mask[i] && id != tokenizer.end_of_text())
      bytes += static_cast<int64_t>(tokenizer.decode({&id, 1}).size());
  }
  return bytes;
}

TEST(RunMetrics, BitsPerByteAreOfTheSupervisedText) {
  for (const int32_t vocabulary : {257, 300}) {
    SCOPED_TRACE(vocabulary);
    const TempFolder folder;
    const auto run = RunFolder::create(folder / "run", false);
    auto recipe = small_recipe();
    recipe.tokenizer.vocab_size = vocabulary;
    recipe.train.accumulate = 2, recipe.train.logging_steps = 3, recipe.train.steps = 6;
    recipe.train.eval_batches = 0;
    Trainer trainer(recipe, run);
    trainer.run();
    const Recipe& used = trainer.recipe();
    const Tokenizer& tokenizer = trainer.tokenizer();
    const Dataset data = load_dataset(used.data, used.tasks, tokenizer, used.chat);
    Loader loader(data.train, loading_of(used, tokenizer.end_of_text()));
    Lines evaluations;
    for (const auto& line : lines_in(run.metrics())) {
      if (line.contains("eval/loss")) evaluations.push_back(line);
      if (!line.contains("training/loss")) continue;
      double bytes = 0, tokens = 0;
      for (int i = 0; i < 3 * 2; ++i) {
        const Batch& batch = loader.next();
        bytes += static_cast<double>(spelled_bytes(batch, tokenizer));
        tokens += static_cast<double>(batch.supervised);
      }
      EXPECT_LT(bytes, vocabulary == 257 ? tokens : 3 * tokens) << "ends of documents are no bytes";
      const double wanted = line.at("training/loss").get<double>() * tokens / bytes / std::numbers::ln2;
      EXPECT_NEAR(line.at("training/bits_per_byte").get<double>(), wanted, 1e-9);
    }
    LoaderOptions options = loading_of(used, tokenizer.end_of_text());
    options.shuffle = false;
    Loader held_out(data.val, options);
    double bytes = 0, tokens = 0;
    while (const Batch* batch = held_out.try_next()) {
      bytes += static_cast<double>(spelled_bytes(*batch, tokenizer));
      tokens += static_cast<double>(batch->supervised);
    }
    ASSERT_FALSE(evaluations.empty());
    const auto& last = evaluations.back();
    EXPECT_NEAR(last.at("eval/bits_per_byte").get<double>(),
                last.at("eval/loss").get<double>() * tokens / bytes / std::numbers::ln2, 1e-9);
  }
}

TEST(RunMetrics, ALossThatIsMoreThanCrossEntropyIsNotToldInBits) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = small_recipe();
  recipe.train.steps = 4, recipe.train.label_smoothing = 0.1;
  Trainer(recipe, run).run();
  for (const auto& line : lines_in(run.metrics())) {
    EXPECT_FALSE(line.contains("training/bits_per_byte"));
    EXPECT_EQ(line.contains("eval/bits_per_byte"), line.contains("eval/loss"));
  }
}

TEST(RunMetrics, LearningRatesByGroupWhereThereAreSeveral) {
  const TempFolder folder;
  for (const auto optimizer : {OptimizerKind::kAdamw, OptimizerKind::kMuon}) {
    const auto run = RunFolder::create(folder / std::string(name_of(optimizer)), false);
    auto recipe = small_recipe();
    recipe.train.optimizer = optimizer, recipe.train.steps = 8, recipe.train.warmup_steps = 10;
    recipe.train.embedding_lr = 0.002, recipe.train.schedule = ScheduleKind::kConstant;
    Trainer(recipe, run).run();
    for (const auto& line : training_lines(run)) {
      const auto& train = recipe.train;
      const double scale = line.at("global_step").get<double>() / 10, wide = std::sqrt(32.0 / 768);
      EXPECT_EQ(line.contains("training/lr/matrix"), optimizer == OptimizerKind::kMuon);
      if (optimizer == OptimizerKind::kAdamw) continue;
      EXPECT_NEAR(line.at("training/lr/matrix").get<double>(), scale * train.matrix_lr, 1e-9);
      EXPECT_EQ(line.at("training/lr/matrix"), line.at("training/lr"));
      EXPECT_NEAR(line.at("training/lr/embedding").get<double>(), scale * train.embedding_lr / wide, 1e-9);
      EXPECT_NEAR(line.at("training/lr/norm").get<double>(), scale * train.scalar_lr * 0.01, 1e-9);
    }
  }
}

TEST(RunMetrics, FractionsOfTokensBySource) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = small_recipe();
  recipe.data.mixture = {"name=one source=tasks cap=20", "name=two source=tasks cap=200"};
  recipe.log.dataset_metrics_steps = 1;
  Trainer(recipe, run).run();
  double one = 0, two = 0;
  for (const auto& line : training_lines(run)) {
    const double a = line.at("training/tokens/one"), b = line.at("training/tokens/two");
    EXPECT_NEAR(a + b, 1, 1e-12);
    one += a, two += b;
    if (a > 0 && b > 0) {
      EXPECT_NEAR(
          a * line.at("training/loss/one").get<double>() + b * line.at("training/loss/two").get<double>(),
          line.at("training/loss").get<double>(), 1e-5);
    }
  }
  EXPECT_GT(two, 4 * one);
}

/// The metrics by layer of the last step, from the checkpoints before and after it.
void expect_update_ratios(Recipe recipe, const RunFolder& run) {
  recipe.train.steps = 4, recipe.train.save_steps = 1, recipe.train.keep_checkpoints = 10;
  recipe.log.detail_steps = 2, recipe.train.eval_steps = 0;
  Trainer(recipe, run).run();
  const auto before = load_checkpoint(run.checkpoints(), 3).weights,
             after = load_checkpoint(run.checkpoints(), 4).weights;
  std::map<std::string, double> change, weight;
  for (const auto& [name, tensor] : after.tensors) {
    const bool trained = !recipe.lora.on() || name.find(".lora_") != name.npos;
    if (!trained) continue;
    const auto block = name.starts_with("blocks.") ? name.substr(7, name.find('.', 7) - 7) : name;
    const auto old = before.tensors.at(name).to(at::kDouble);
    change[block] += (tensor.to(at::kDouble) - old).pow(2).sum().item<double>();
    weight[block] += old.pow(2).sum().item<double>();
  }
  const auto line = training_lines(run).back();
  ASSERT_EQ(line.at("global_step"), 4);
  const auto expect_ratio = [&](const std::string& name, double ratio) {
    ASSERT_TRUE(weight.contains(name)) << name;
    const double wanted = std::sqrt(change[name] / weight[name]);
    EXPECT_NEAR(ratio, wanted, 1e-5 * wanted) << name;
    weight.erase(name);
  };
  const auto& blocks = line.at("training/update_ratio_by_layer");
  for (size_t i = 0; i < blocks.size(); ++i) expect_ratio(std::to_string(i), blocks[i]);
  const std::string prefix = "training/update_ratio/";
  for (const auto& [name, value] : line.items())
    if (name.starts_with(prefix)) expect_ratio(name.substr(prefix.size()), value);
  EXPECT_TRUE(weight.empty()) << weight.begin()->first << " is not told of";
  double squares = 0;
  for (const double norm : line.at("training/grad_norm_by_layer")) squares += norm * norm;
  for (const auto& [name, value] : line.items())
    if (name.starts_with("training/grad_norm/")) squares += value.get<double>() * value.get<double>();
  const double all = line.at("training/grad_norm");
  EXPECT_NEAR(std::sqrt(squares), all, 1e-5 * all);
}

TEST(RunMetrics, UpdateRatiosAreThoseOfCheckpoints) {
  const TempFolder folder;
  auto recipe = small_recipe();
  recipe.model.layers = 2, recipe.train.logging_steps = 1;
  expect_update_ratios(recipe, RunFolder::create(folder / "adamw", false));
  recipe.train.optimizer = OptimizerKind::kMuon, recipe.train.accumulate = 2;
  recipe.train.embedding_lr = 0.002;
  expect_update_ratios(recipe, RunFolder::create(folder / "muon", false));
  recipe.lora.rank = 2;
  recipe.train.optimizer = OptimizerKind::kAdamw;
  expect_update_ratios(recipe, RunFolder::create(folder / "lora", false));
}

TEST(RunMetrics, NormsByLayerAreInTheLinesThatTellDetails) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = small_recipe();
  recipe.train.steps = 12, recipe.train.logging_steps = 3, recipe.log.detail_steps = 4;
  Trainer trainer(recipe, run);
  trainer.run();
  std::vector<int64_t> told;
  for (const auto& line : training_lines(run))
    if (line.contains("training/grad_norm_by_layer")) told.push_back(line.at("global_step"));
  EXPECT_EQ(told, (std::vector<int64_t>{6, 9, 12})) << "for steps 4, 8 and 12";
  EXPECT_EQ(trainer.syncs().of("loss_extract"), 2) << "they cost no sync";
}

TEST(RunMetrics, HostMemoryLoaderAndPeak) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = small_recipe();
  recipe.log.detail_steps = recipe.log.memory_steps = 1;
  Trainer(recipe, run).run();
  for (const auto& line : training_lines(run)) {
    EXPECT_GT(line.at("memory/host_gib").get<double>(), 0.01);
    EXPECT_LT(line.at("memory/host_gib").get<double>(), 64);
    EXPECT_GE(line.at("perf/loader_ready").get<double>(), 0);
    EXPECT_LE(line.at("perf/loader_ready").get<double>(),
              static_cast<double>(recipe.data.num_workers * recipe.data.prefetch_factor + 1));
    EXPECT_GT(line.value("perf/mfu", 1.0), 0);
    EXPECT_FALSE(line.contains("device/gpu_utilization")) << "a CPU is no GPU";
    EXPECT_FALSE(line.contains("perf/communication")) << "one process has nobody to talk to";
  }
  const auto machine = lines_in(run.events()).front().at("machine");
  EXPECT_EQ(machine.at("peak_by"), "measured GEMM");
  EXPECT_GT(machine.at("peak_flops").get<double>(), 1e8);
}

TEST(RunMetrics, SeveralProcessesTellOfAllOfThem) {
  if (!in_child()) return expect_success(2);
  const fs::path folder = std::getenv("TIGHTLOOP_TEST_FOLDER");
  auto recipe = small_recipe();
  recipe.train.steps = 8, recipe.train.micro_batch = 4, recipe.model.layers = 2, recipe.log.detail_steps = 4;
  {
    Processes processes;
    const bool main = processes.main();
    Trainer(recipe, main ? RunFolder::create(folder / "two", false) : RunFolder(folder / "two"),
            {.processes = &processes})
        .run();
    if (!main) return;
  }
  recipe.train.micro_batch = 8;
  Trainer(recipe, RunFolder::create(folder / "one", false)).run();
  const auto lines = training_lines(RunFolder(folder / "two")),
             wanted = training_lines(RunFolder(folder / "one"));
  ASSERT_EQ(lines.size(), wanted.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    for (const char* metric : {"training/mean_loss", "training/bits_per_byte"})
      EXPECT_NEAR(lines[i].at(metric).get<double>(), wanted[i].at(metric).get<double>(), 1e-4) << metric;
    for (const char* metric : {"training/grad_norm_by_layer", "training/update_ratio_by_layer"})
      for (size_t layer = 0; layer < 2; ++layer) {
        const double norm = wanted[i].at(metric).at(layer);
        EXPECT_NEAR(lines[i].at(metric).at(layer).get<double>(), norm, 0.01 * norm) << metric;
      }
    const double seconds = lines[i].at("perf/communication");
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, lines[i].at("perf/step_time").get<double>());
  }
}

}  // namespace
}  // namespace tightloop::testing
