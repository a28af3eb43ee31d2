#include "infer/training_samples.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/files.h"
#include "infer/token_scores.h"
#include "support.h"
#include "train/run/checkpoint.h"
#include "train/settings/loading.h"
#include "train/small_recipe.h"
#include "train/trainer.h"
#include "train/watch/run_log.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::small_recipe;
using testing::TempFolder;

using Lines = std::vector<nlohmann::json>;

Lines samples_of(const RunFolder& run) { return JsonLinesReader(run.samples()).read(); }

/// Trains, with samples, and gives what samples.jsonl has then.
Lines sampled(const Recipe& recipe, const RunFolder& run, const TrainerOptions& options = {}) {
  Trainer trainer(recipe, run, options);
  trainer.also_sample(training_sampler(trainer.task(), trainer.recipe()));
  trainer.run();
  return samples_of(run);
}

Recipe evaluated_recipe() {
  auto recipe = small_recipe();
  recipe.train.steps = 8, recipe.train.eval_steps = 4, recipe.eval.sample_tokens = 6;
  return recipe;
}

Recipe text_recipe(const fs::path& folder) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "Document " + std::to_string(i) + " says that the cat sat.\n\n";
  write_file_whole(folder / "text", text);
  auto recipe = evaluated_recipe();
  recipe.data.source = DataSource::kText, recipe.data.rows = RowKind::kStream, recipe.data.loss_after = "";
  recipe.data.documents = DocumentEnd::kBlankLine, recipe.data.train = {(folder / "text").string()};
  return recipe;
}

TEST(TrainingSamples, TokensOfAnImportedModelEndThem) {
  const TempFolder folder;
  Trainer trainer(evaluated_recipe(), RunFolder::create(folder / "run", false));
  const auto whole = training_sampler(trainer.task(), trainer.recipe())().at(0).text;
  ASSERT_GE(whole.size(), 2u);
  const std::vector<int32_t> stop{static_cast<unsigned char>(whole[1])};  // a byte a token
  const auto cut = training_sampler(trainer.task(), trainer.recipe(), stop)().at(0).text;
  EXPECT_EQ(cut, whole.substr(0, whole.find(whole[1])));
}

TEST(TrainingSamples, HeldOutQuestionsAreAnsweredAtEveryEvaluation) {
  const TempFolder folder;
  const auto lines = sampled(evaluated_recipe(), RunFolder::create(folder / "run", false));
  ASSERT_EQ(lines.size(), 6u);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["global_step"], i < 3 ? 4 : 8);
    EXPECT_EQ(lines[i]["kind"], "answer");
    EXPECT_TRUE(lines[i]["prompt"].get<std::string>().ends_with("=")) << lines[i];
    EXPECT_FALSE(lines[i]["reference"].get<std::string>().empty()) << lines[i];
    EXPECT_GT(lines[i]["time"].get<double>(), 1.6e9);
    EXPECT_EQ(lines[i]["prompt"], lines[i % 3]["prompt"]) << "always the same";
  }
  EXPECT_NE(lines[0]["prompt"], lines[1]["prompt"]);
}

TEST(TrainingSamples, TextsAreContinued) {
  const TempFolder folder;
  auto recipe = text_recipe(folder.path());
  const auto lines = sampled(recipe, RunFolder::create(folder / "a", false));
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0]["kind"], "continuation");
  EXPECT_TRUE(lines[0]["prompt"].get<std::string>().starts_with("Document ")) << lines[0];
  EXPECT_FALSE(lines[0]["reference"].get<std::string>().empty());

  recipe.eval.prompts = {"The cat", "A dog, that"};
  write_file_whole(folder / "more", "third\n\nfourth\n");
  recipe.eval.prompts_file = (folder / "more").string();
  const auto given = sampled(recipe, RunFolder::create(folder / "b", false));
  ASSERT_EQ(given.size(), 8u);
  EXPECT_EQ(given[1]["prompt"], "A dog, that");
  EXPECT_EQ(given[3]["prompt"], "fourth");
  EXPECT_FALSE(given[0].contains("reference"));
  EXPECT_LE(given[0]["text"].get<std::string>().size(), 6 * 4u) << "bytes are tokens here";
}

TEST(TrainingSamples, ConversationsAreAnswered) {
  const TempFolder folder;
  std::string chats;
  for (int i = 0; i < 200; ++i)
    chats += nlohmann::json{{"messages",
                             {{{"role", "user"}, {"content", "count " + std::to_string(i)}},
                              {{"role", "assistant"}, {"content", "it is " + std::to_string(i)}}}}}
                 .dump() +
             "\n";
  write_file_whole(folder / "chats.jsonl", chats);
  auto recipe = evaluated_recipe();
  recipe.data.source = DataSource::kJsonl, recipe.data.rows = RowKind::kPack, recipe.data.loss_after = "";
  recipe.data.seq_len = 96, recipe.data.train = {(folder / "chats.jsonl").string()};
  recipe.tokenizer.vocab_size = 300;
  const auto lines = sampled(recipe, RunFolder::create(folder / "a", false));
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0]["kind"], "answer");
  EXPECT_TRUE(lines[0]["prompt"].get<std::string>().starts_with("count ")) << lines[0];
  EXPECT_TRUE(lines[0]["reference"].get<std::string>().starts_with("it is ")) << lines[0];
  recipe.eval.prompts = {"who are you?"};
  const auto given = sampled(recipe, RunFolder::create(folder / "b", false));
  ASSERT_EQ(given.size(), 2u);
  EXPECT_EQ(given[0]["kind"], "answer");
  EXPECT_EQ(given[0]["prompt"], "who are you?") << "as it was written";
}

TEST(TrainingSamples, SentencesAreTranslated) {
  const TempFolder folder;
  std::string pairs;
  for (int i = 0; i < 200; ++i) pairs += "one " + std::to_string(i) + "\teins " + std::to_string(i) + "\n";
  write_file_whole(folder / "pairs.tsv", pairs);
  auto recipe = evaluated_recipe();
  recipe.data = {};
  recipe.data.source = DataSource::kPairs, recipe.data.seq_len = 24, recipe.data.batch_tokens = 256;
  recipe.data.train = {(folder / "pairs.tsv").string()};
  recipe.tokenizer.type = TokenizerType::kUnigram, recipe.tokenizer.vocab_size = 20;
  recipe.model.family = "seq2seq";
  const auto lines = sampled(recipe, RunFolder::create(folder / "run", false));
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(lines[0]["kind"], "translation");
  EXPECT_TRUE(lines[0]["prompt"].get<std::string>().starts_with("one ")) << lines[0];
  EXPECT_TRUE(lines[0]["reference"].get<std::string>().starts_with("eins ")) << lines[0];
}

TEST(TrainingSamples, LeaveTrainingAsItIsToTheBit) {
  const TempFolder folder;
  auto recipe = evaluated_recipe();
  recipe.model.dropout = 0.1, recipe.eval.temperature = 0.9;
  const auto with = RunFolder::create(folder / "with", false),
             without = RunFolder::create(folder / "without", false);
  EXPECT_FALSE(sampled(recipe, with).empty());
  Trainer(recipe, without).run();
  const auto a = load_checkpoint(with.checkpoints()), b = load_checkpoint(without.checkpoints());
  for (const auto& [name, tensor] : a.weights.tensors)
    EXPECT_TRUE(at::equal(tensor, b.weights.tensors.at(name))) << name;
  for (const auto& [name, tensor] : a.optimizer.tensors)
    EXPECT_TRUE(at::equal(tensor, b.optimizer.tensors.at(name))) << name;
  const auto losses = [](const RunFolder& run) {
    std::vector<nlohmann::json> values;
    for (const auto& line : JsonLinesReader(run.metrics()).read())
      values.push_back(
          {line.value("training/loss", nlohmann::json()), line.value("eval/loss", nlohmann::json())});
    return values;
  };
  EXPECT_EQ(losses(with), losses(without));
}

TEST(TrainingSamples, AFailureIsAWarning) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  Trainer trainer(evaluated_recipe(), run);
  std::vector<int64_t> saved;
  trainer.also_sample([&]() -> std::vector<TrainingSample> {
    saved = checkpoint_steps(run.checkpoints());
    throw std::runtime_error("planted");
  });
  EXPECT_EQ(trainer.run().step, 8);
  EXPECT_EQ(saved.back(), 8) << "saved before";
  EXPECT_TRUE(samples_of(run).empty());
}

TEST(TrainingSamples, CanBeSwitchedOffAndPromptsAreCheckedBefore) {
  const TempFolder folder;
  auto recipe = evaluated_recipe();
  recipe.eval.samples = 0;
  const auto run = RunFolder::create(folder / "run", false);
  EXPECT_TRUE(sampled(recipe, run).empty());
  EXPECT_FALSE(fs::exists(run.samples()));
  recipe.eval.prompts_file = (folder / "nowhere").string();
  Trainer trainer(recipe, RunFolder::create(folder / "other", false));
  error_of(ExitCode::kData, [&] { training_sampler(trainer.task(), recipe); });
  recipe.eval.prompts_file = "", recipe.eval.prompts = {std::string(100'000, 'x')};
  error_of(ExitCode::kUsage, [&] { training_sampler(trainer.task(), recipe); });
}

TEST(TrainingSamples, AResumedRunDropsThoseOfLaterSteps) {
  const TempFolder folder;
  auto recipe = evaluated_recipe();
  recipe.train.stop_at = 6;
  const auto run = RunFolder::create(folder / "run", false);
  EXPECT_EQ(sampled(recipe, run).size(), 3u);
  std::ofstream(run.samples(), std::ios::app)
      << R"({"global_step": 7, "text": "of a process that was killed"})"
      << "\n{\"global_step\"";
  recipe.train.stop_at = 0;
  const auto lines = sampled(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())});
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[3]["global_step"], 8);
}

TEST(SampleLog, AStepGetsItsSamplesOnceAndTextsAreCutForTheLog) {
  const TempFolder folder;
  const TrainingSample sample{.kind = SampleKind::kAnswer, .prompt = "a\nb", .text = "half a character \xC3"};
  for (int i = 0; i < 2; ++i) SampleLog(folder / "samples.jsonl", 5).add(5, {sample});
  EXPECT_EQ(JsonLinesReader(folder / "samples.jsonl").read().size(), 1u);
  EXPECT_EQ(sample_text(sample), "a b -> half a character \\xc3");
  const TrainingSample large{.prompt = std::string(500, 'p'), .text = std::string(500, 't')};
  EXPECT_LT(sample_text(large).size(), 210u);
  EXPECT_TRUE(sample_text(large).ends_with("ttt…")) << sample_text(large);
  const TrainingSample control{.prompt = "p", .text = std::string(100, '\x01')};
  EXPECT_LT(sample_text(control).size(), 210u) << "as it is printed";
  EXPECT_EQ(sample_text({.prompt = "p", .text = " \n  "}), "p -> (only spaces)");
  EXPECT_EQ(sample_text({.prompt = "p"}), "p -> (nothing)");
}

TEST(HeldOutAccuracy, IsTheFractionOfTopPredictionsThatAreRight) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = small_recipe();
  recipe.train.steps = 30, recipe.train.eval_batches = 0;
  Trainer trainer(recipe, run);
  trainer.run();
  const auto logged = JsonLinesReader(run.metrics()).read().back();
  ASSERT_TRUE(logged.contains("eval/accuracy")) << logged;
  LoaderOptions loading = loading_of(trainer.recipe(), trainer.tokenizer());
  loading.shuffle = false, loading.threads = 0;
  // One owner of the documents is the task: the loader only borrows them here.
  const std::shared_ptr<const Documents> documents(std::shared_ptr<void>(),
                                                   trainer.task().held_out_documents());
  Loader loader(documents, loading);
  int64_t right = 0, all = 0;
  while (const Batch* batch = loader.try_next()) {
    const auto tensor = [&](int32_t* data) {
      return at::from_blob(data, {batch->rows, batch->length}, at::kInt).to(at::kLong);
    };
    const auto best = score_tokens(trainer.model(), tensor(batch->inputs), tensor(batch->targets)).best;
    for (int64_t i = 0; i < batch->rows * batch->length; ++i) {
      if (!batch->loss_mask[i]) continue;
      ++all;
      right += best.const_data_ptr<int64_t>()[i] == batch->targets[i];
    }
  }
  ASSERT_GT(all, 0);
  EXPECT_GT(right, 0);
  EXPECT_DOUBLE_EQ(logged["eval/accuracy"].get<double>(),
                   static_cast<double>(right) / static_cast<double>(all));
}

}  // namespace
}  // namespace tightloop
