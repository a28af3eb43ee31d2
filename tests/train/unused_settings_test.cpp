#include "train/settings/unused_settings.h"

#include <filesystem>

#include "support.h"
#include "train/settings/doubtful_settings.h"

namespace tightloop {
namespace {

namespace fs = std::filesystem;

Recipe with(const std::vector<std::string>& settings) {
  Recipe recipe;
  recipe.bind().apply(settings);
  return recipe;
}

TEST(UnusedSettings, AdaptersOfATranslatorAreRefused) {
  const auto message = testing::error_of(ExitCode::kUsage, [] {
    unused_settings(with({"--model.preset", "translate-tiny", "--lora.rank", "8"}));
  });
  EXPECT_NE(message.find("lora.rank is 8"), std::string::npos) << message;
}

TEST(UnusedSettings, TheZLossOfATranslatorIsRefused) {
  const auto message = testing::error_of(ExitCode::kUsage, [] {
    unused_settings(with({"--model.preset", "translate-tiny", "--train.z_loss", "1e-4"}));
  });
  EXPECT_NE(message.find("train.z_loss is 0.0001"), std::string::npos) << message;
}

TEST(UnusedSettings, FilesForGeneratedDataAreRefused) {
  for (const char* source : {"tasks", "spelling", "toy_pairs"}) {
    const auto message = testing::error_of(ExitCode::kUsage, [&] {
      unused_settings(with({"--data.source", source, "--data.train", "mine.txt"}));
    });
    EXPECT_NE(message.find("data.train names files"), std::string::npos) << message;
  }
  EXPECT_TRUE(unused_settings(with({"--data.source", "text", "--data.train", "mine.txt"})).empty());
}

TEST(UnusedSettings, AreNamed) {
  const std::vector<std::vector<std::string>> cases{
      {"model.positions", "--model.positions", "rotary"},
      {"train.smoothing", "--train.smoothing", "kl"},
      {"data.batch_tokens", "--data.batch_tokens", "100"},
      {"train.micro_batch", "--model.family", "seq2seq", "--train.micro_batch", "4"},
      {"data.rows", "--model.family", "seq2seq", "--data.rows", "pad"},
      {"train.eval_batches", "--model.family", "seq2seq", "--train.eval_batches", "4"},
      {"model.gradient_checkpointing", "--model.family", "seq2seq", "--model.gradient_checkpointing", "auto"},
      {"model.init_std", "--model.family", "nanochat", "--model.init_std", "0.1"},
      {"model.window_pattern", "--model.window_pattern", "L"},
      {"model.experts", "--model.experts", "8"},
      {"model.rope_factor", "--model.rope_factor", "2"},
      {"train.muon_beta2", "--train.muon_beta2", "0.5"},
      {"train.lr", "--train.optimizer", "muon", "--train.lr", "0.1"},
      {"train.decay_fraction", "--train.decay_fraction", "0.5"},
      {"train.min_lr", "--train.schedule", "constant", "--train.min_lr", "0.5"},
      {"train.warmup_steps", "--train.schedule", "minimind", "--train.warmup_steps", "5"},
      {"train.steps", "--train.steps", "7", "--train.epochs", "2"},
      {"train.warmup_ratio", "--train.warmup_steps", "7", "--train.warmup_ratio", "0.1"},
      {"train.loss_scale", "--train.loss_scale", "8"},
      {"train.graph", "--train.device", "cpu", "--train.graph", "on"},
      {"train.patience", "--train.eval_steps", "0", "--train.patience", "3"},
      {"lora.alpha", "--lora.alpha", "3"},
      {"dist.shard", "--dist.shard", "optimizer"},
      {"dist.overlap", "--dist.overlap", "false"},
  };
  for (const auto& words : cases) {
    const auto sentences = unused_settings(with({words.begin() + 1, words.end()}));
    ASSERT_EQ(sentences.size(), 1u) << words[0];
    EXPECT_TRUE(sentences[0].starts_with(words[0] + " has no effect here: it ")) << sentences[0];
  }
}

TEST(UnusedSettings, ThoseOfSeveralProcesses) {
  const auto said = [](int64_t world, std::vector<std::string> settings) {
    settings.insert(settings.end(), {"--dist.shard", "optimizer", "--dist.reduce", "compute"});
    Recipe recipe = with(settings);
    recipe.world = world;
    return unused_settings(recipe);
  };
  EXPECT_EQ(said(1, {}).size(), 2u) << "each of them";
  EXPECT_TRUE(said(2, {}).empty()) << said(2, {}).front();
  const std::vector<std::string> rows{"--train.micro_batch", "2", "--data.seq_len", "8"};
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--train.accumulate", "2"}, {"--train.step_tokens", "64"}}) {
    auto settings = rows;
    settings.insert(settings.end(), more.begin(), more.end());
    const auto sentences = said(2, settings);
    ASSERT_EQ(sentences.size(), 1u) << more[0];
    EXPECT_TRUE(sentences[0].starts_with("dist.reduce has no effect here: it ")) << sentences[0];
    EXPECT_EQ(said(4, settings).size(), more[0] == "--train.accumulate" ? 1u : 0u) << more[0];
  }
}

TEST(UnusedSettings, OurRecipesHaveNone) {
  EXPECT_TRUE(unused_settings({}).empty());
  for (const auto& entry : fs::directory_iterator(testing::source_folder() / "configs")) {
    if (entry.path().extension() != ".yaml") continue;
    Recipe recipe;
    recipe.bind().load(entry.path());
    for (const auto& sentence : unused_settings(recipe)) ADD_FAILURE() << entry.path() << ": " << sentence;
  }
}

TEST(DoubtfulSettings, WhatIsHardlyMeantIsSaid) {
  Recipe recipe;
  recipe.data.train = {"a.txt"};
  EXPECT_TRUE(doubtful_settings(recipe).empty()) << doubtful_settings(recipe).front();
  const auto said = [](auto change) {
    Recipe recipe;
    recipe.data.train = {"a.txt"};
    change(recipe);
    const auto sentences = doubtful_settings(recipe);
    return sentences.size() == 1 ? sentences[0] : std::to_string(sentences.size()) + " sentences";
  };
  EXPECT_NE(said([](Recipe& r) { r.train.lr = 0; }).find("train.lr is 0"), std::string::npos);
  EXPECT_NE(said([](Recipe& r) { r.train.warmup_steps = r.train.steps; }).find("train.warmup_steps"),
            std::string::npos);
  EXPECT_NE(said([](Recipe& r) { r.train.min_lr = 6e-5; }).find("a share of the peak"), std::string::npos);
  EXPECT_NE(said([](Recipe& r) { r.data.val = {"a.txt"}; }).find("'a.txt' is in data.train and in data.val"),
            std::string::npos);
}

}  // namespace
}  // namespace tightloop
