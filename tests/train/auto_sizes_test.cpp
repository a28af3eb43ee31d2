#include "train/settings/auto_sizes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/files.h"
#include "support.h"
#include "train/settings/resolve_source.h"

namespace tightloop::testing {
namespace {

SizeFacts sized(double bytes, double flops, bool gpu = false) {
  return {.bytes = bytes, .gpu = gpu, .flops = flops};
}

double seconds(const SizeFacts& facts) {
  const AutoSizes sizes = choose_sizes(facts);
  const double tokens = facts.bytes / bytes_per_token(sizes.vocab_size);
  ModelConfig model;
  model.layers = sizes.layers, model.width = sizes.width, model.heads = sizes.heads;
  model.resolve(sizes.vocab_size, sizes.seq_len);
  const double flops = 6.0 * static_cast<double>(sizes.layers * 12 * sizes.width * sizes.width);
  return choose_epochs(facts, tokens, flops, sizes.most_epochs) * tokens * flops / facts.flops;
}

TEST(AutoSizes, MoreTextNeverGivesLess) {
  for (const bool gpu : {false, true}) {
    for (const double flops : {1e10, 5e10, 4e11, 3e13, 3e14}) {
      AutoSizes before = choose_sizes(sized(1, flops, gpu));
      for (double bytes = 1e3; bytes <= 1e11; bytes *= 1.5) {
        const AutoSizes now = choose_sizes(sized(bytes, flops, gpu));
        EXPECT_GE(now.vocab_size, before.vocab_size);
        EXPECT_GE(now.layers, before.layers);
        EXPECT_GE(now.width, before.width);
        EXPECT_GE(now.seq_len, before.seq_len);
        EXPECT_GE(now.rows, before.rows);
        EXPECT_LE(now.most_epochs, before.most_epochs);
        EXPECT_EQ(now.width % now.heads, 0);
        before = now;
      }
    }
  }
}

TEST(AutoSizes, StayInBounds) {
  for (double bytes = 1e3; bytes <= 1e11; bytes *= 2) {
    for (const double cores : {1., 2., 8., 64.}) {
      const AutoSizes sizes = choose_sizes(sized(bytes, cores * 25e9));
      EXPECT_GE(sizes.vocab_size, 512);
      EXPECT_LE(sizes.vocab_size, 4096);
      EXPECT_GE(sizes.most_epochs, 1);
      EXPECT_LE(sizes.most_epochs, 20);
      EXPECT_LT(seconds(sized(bytes, cores * 25e9)), 17 * 60) << bytes << " bytes, " << cores << " cores";
    }
  }
  EXPECT_LT(choose_sizes(sized(1e4, 5e10)).width, 128);         // 10 kB teach no large model
  EXPECT_GE(choose_sizes(sized(1e10, 3e14, true)).width, 768);  // an H200 has time for one
}

TEST(AutoSizes, AFewRowsAreHeldOut) {
  EXPECT_EQ(choose_holdout(1e6, 128), 0.05);
  EXPECT_GE(choose_holdout(2000, 64) * 2000, 2 * 64);
  EXPECT_LE(choose_holdout(100, 64), 0.3);
}

TEST(AutoSizes, WhatIsGivenStays) {
  const TempFolder folder;
  write_file_whole(folder.path() / "a.txt", std::string(20'000, 'a'));
  const auto resolved = [&](const std::vector<std::string>& more) {
    Recipe recipe;
    Config config = recipe.bind();
    config.apply({"--data.train", (folder.path() / "a.txt").string(), "--model.preset", "auto",
                  "--data.seq_len", "0", "--tokenizer.vocab_size", "0", "--train.micro_batch", "0",
                  "--train.steps", "0", "--data.holdout_by", "auto", "--train.device", "cpu"});
    config.apply(more);
    resolve_source(recipe, config);
    EXPECT_TRUE(has_auto_sizes(recipe));
    EXPECT_FALSE(resolve_sizes(recipe, config).empty());
    EXPECT_FALSE(has_auto_sizes(recipe));
    return recipe;
  };
  const Recipe all = resolved({});
  EXPECT_EQ(all.model.width, 64);
  EXPECT_EQ(all.model.preset, "");
  EXPECT_EQ(all.data.holdout_by, HoldoutBy::kTail);
  EXPECT_GT(all.train.epochs, 1);
  const Recipe some = resolved({"--model.width", "96", "--train.steps", "7", "--data.seq_len", "32"});
  EXPECT_EQ(some.model.width, 96);
  EXPECT_EQ(96 % some.model.heads, 0);
  EXPECT_EQ(some.model.layers, all.model.layers);
  EXPECT_EQ(some.train.steps, 7);
  EXPECT_EQ(some.train.epochs, 0);
  EXPECT_EQ(some.data.seq_len, 32);
}

TEST(AutoSizes, RowsOfAStepSuitTheDataAndNotTheProcesses) {
  const TempFolder folder;
  const auto planned = [&](size_t bytes, int64_t world, const std::vector<std::string>& more) {
    write_file_whole(folder.path() / "a.txt", std::string(bytes, 'a'));
    Recipe recipe;
    recipe.world = world;
    Config config = recipe.bind();
    config.apply({"--data.source", "text", "--data.train", (folder.path() / "a.txt").string(),
                  "--tokenizer.vocab_size", "257", "--model.layers", "1", "--model.width", "16",
                  "--model.heads", "1", "--data.seq_len", "64", "--train.micro_batch", "0", "--train.device",
                  "cpu"});
    config.apply(more);
    const std::string said = resolve_sizes(recipe, config);
    const auto& train = recipe.train;
    EXPECT_EQ(train.step_tokens, train.micro_batch * train.accumulate * world * 64);
    EXPECT_NE(said.find(" " + std::to_string(train.step_tokens / 64) + " row"), said.npos) << said;
    return train.step_tokens / 64;
  };
  const std::vector<std::string> one_epoch{"--train.steps", "0", "--train.epochs", "1"};
  for (const int64_t world : {1, 2, 4, 8}) EXPECT_EQ(planned(60'000, world, one_epoch), 8) << world;
  EXPECT_EQ(planned(60'000, 3, one_epoch), 9) << "as many as the processes can share";
  EXPECT_EQ(planned(60'000, 16, one_epoch), 16);
  EXPECT_EQ(planned(64 * 130, 1, one_epoch), 2) << "65 updates rather than 16";
  EXPECT_EQ(planned(1000, 1, one_epoch), 1);
  EXPECT_EQ(planned(1000, 1, {"--train.steps", "500"}), 8) << "passes over the data are many";
  EXPECT_EQ(planned(60'000, 2, {"--train.steps", "500", "--train.step_tokens", "768"}), 12) << "as asked for";
}

TEST(AutoSizes, OfPairsCountASide) {
  TempFolder folder;
  std::string pairs;
  for (int i = 0; i < 4000; ++i) pairs += "the old river finds the lamp.\tder alte fluss findet die lampe.\n";
  write_file_whole(folder / "pairs.tsv", pairs);
  Recipe recipe;
  Config config = recipe.bind();
  config.load_text(
      "{model: {preset: auto, family: seq2seq}, tokenizer: {vocab_size: 0}, train: {steps: 0, device: cpu}}",
      "r");
  config.apply({"--data.source", "pairs", "--data.train", (folder / "pairs.tsv").string()});
  const std::string said = resolve_sizes(recipe, config);
  EXPECT_NE(said.find("tokens a side"), std::string::npos) << said;
  EXPECT_GT(recipe.train.epochs, 5);
  EXPECT_GE(recipe.model.layers, 2);
  EXPECT_GT(recipe.tokenizer.vocab_size, 256);
}

TEST(AutoSizes, ALargerModelIsFineTunedMoreGently) {
  EXPECT_DOUBLE_EQ(choose_finetune_lr(1e9, false), 2e-5);
  EXPECT_DOUBLE_EQ(choose_finetune_lr(64e6, false), 1e-4);
  EXPECT_DOUBLE_EQ(choose_finetune_lr(2e6, false), 8e-4);
  EXPECT_DOUBLE_EQ(choose_finetune_lr(1e9, true), 2e-4);
  for (double size = 1e4; size < 1e12; size *= 2)
    EXPECT_GE(choose_finetune_lr(size, false), choose_finetune_lr(2 * size, false));
}

TEST(AutoSizes, NoFileIsASentence) {
  Recipe recipe;
  Config config = recipe.bind();
  config.apply({"--model.preset", "auto"});
  const auto why = error_of(ExitCode::kUsage, [&] { resolve_sizes(recipe, config); });
  EXPECT_NE(why.find("--data.train"), std::string::npos) << why;
}

TEST(AutoSizes, AreCorrectedWhereTheFilesGiveOtherNumbers) {
  Recipe recipe;
  EXPECT_EQ(corrected_sizes(recipe, 1000), "");  // nothing was said
  recipe.expected_tokens = 100e3, recipe.expected_seconds = 240, recipe.train.epochs = 2;
  EXPECT_EQ(corrected_sizes(recipe, 76000), "");
  EXPECT_EQ(corrected_sizes(recipe, 124000), "");
  EXPECT_EQ(corrected_sizes(recipe, 50000),
            "The files gave 50.0k tokens, not the 100k that were planned for: about 2m00s.");
  recipe.train.epochs = 0;
  EXPECT_EQ(corrected_sizes(recipe, 130000),
            "The files gave 130k tokens, not the 100k that were planned for.");
}

}  // namespace
}  // namespace tightloop::testing
