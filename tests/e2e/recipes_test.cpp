#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::contains;
using testing::run;
using testing::TempFolder;

const std::string kRecipes = TIGHTLOOP_SOURCE_DIR "/configs/";

std::string recipe(const std::string& name) { return "'" + kRecipes + name + ".yaml' "; }

/// About so many bytes of sentences of made-up words, enough of them for any vocabulary here.
void write_text(const fs::path& path, size_t bytes, bool paragraphs = true) {
  const char* const syllables[]{"ri",  "ver", "sto", "ne",  "wal", "ks", "un", "der",
                                "the", "ol",  "bri", "dge", "an",  "si", "ng", "ho"};
  std::string text;
  for (uint64_t i = 1, state = 1; text.size() < bytes; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    for (uint64_t bits = state >> 40, left = 1 + (state >> 62); left > 0; --left, bits >>= 4)
      text += syllables[bits & 15];
    text += i % 97 == 0 && paragraphs ? ".\n\n" : i % 11 == 0 ? ". " : " ";
  }
  write_file_whole(path, text);
}

std::string value_of(const fs::path& config, const std::string& key) {
  std::ifstream lines(config);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("  " + key + ": ")) return line.substr(key.size() + 4);
  return {};
}

// Small text: sizes are chosen and said, something is held out, the run ends by itself and goes on for
// longer.
TEST(TextRecipe, TenKilobytesGiveASmallRun) {
  const TempFolder folder;
  write_text(folder / "a.txt", 10'000, /*paragraphs=*/false);
  const auto trained = run(folder.path(), "tightloop train " + recipe("text") +
                                              "--data.train a.txt --train.device cpu --run.name a");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_TRUE(contains(trained.output, "10 kB of text, about ")) << trained.output;
  EXPECT_TRUE(contains(trained.output, "2 layers of 64")) << trained.output;
  EXPECT_TRUE(contains(trained.output, " epochs = ")) << trained.output;
  EXPECT_TRUE(contains(trained.output, "held-out loss")) << trained.output;
  EXPECT_FALSE(contains(trained.output, "no evaluation")) << trained.output;
  const fs::path config = folder / "runs/a/config.yaml";
  for (const char* key : {"vocab_size", "seq_len", "micro_batch", "steps", "eval_steps", "warmup_steps"})
    EXPECT_GT(std::stoll(value_of(config, key)), 0) << key;
  EXPECT_LT(std::stoll(value_of(config, "steps")), 300);
  EXPECT_EQ(value_of(config, "preset"), "\"\"");
  const auto again = run(folder.path(), "tightloop train --resume runs/a");
  EXPECT_TRUE(contains(again.output, "--train.epochs")) << again.output;
  const auto longer = run(folder.path(), "tightloop train --resume runs/a --train.epochs 22");
  ASSERT_EQ(longer.exit_code, 0) << longer.output;
  EXPECT_TRUE(contains(longer.output, "22 epochs = ")) << longer.output;
}

TEST(TextRecipe, AMegabyteGivesALargerRun) {
  const TempFolder folder;
  write_text(folder / "a.txt", 1'000'000);
  const auto trained =
      run(folder.path(), "tightloop train " + recipe("text") +
                             "--data.train a.txt --train.device cpu --run.name a --train.stop_at 1 "
                             "--train.threads 2");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_TRUE(contains(trained.output, "4 layers of 192")) << trained.output;
  const fs::path config = folder / "runs/a/config.yaml";
  EXPECT_EQ(value_of(config, "seq_len"), "128");
  EXPECT_GT(std::stoll(value_of(config, "steps")), 100);
  EXPECT_LT(std::stoll(value_of(config, "steps")), 2000);
}

TEST(TextRecipe, WhatIsGivenCountsAndBothLengthsAreRefused) {
  const TempFolder folder;
  write_text(folder / "a.txt", 10'000);
  const std::string train =
      "tightloop train " + recipe("text") + "--data.train a.txt --train.device cpu --run.name a ";
  const auto both = run(folder.path(), train + "--train.steps 3 --train.epochs 1");
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_TRUE(contains(both.output, "--train.steps and --train.epochs")) << both.output;
  const auto given =
      run(folder.path(), train + "--train.steps 3 --model.layers 1 --tokenizer.vocab_size 257");
  ASSERT_EQ(given.exit_code, 0) << given.output;
  EXPECT_TRUE(contains(given.output, "step 3/3") || contains(given.output, "to step 3 ")) << given.output;
  EXPECT_EQ(value_of(folder / "runs/a/config.yaml", "layers"), "1");
}

// One recipe, one number of parameters, whoever says it.
TEST(ModelSizes, ShowFitAndTrainAgree) {
  const TempFolder folder;
  write_text(folder / "a.txt", 30'000);
  const std::string arguments = recipe("text") + "--data.train a.txt --train.device cpu ";
  const auto shown = run(folder.path(), "tightloop model show " + arguments + "--json"),
             fitted = run(folder.path(), "tightloop fit " + arguments + "--json");
  ASSERT_EQ(shown.exit_code, 0) << shown.output;
  ASSERT_EQ(fitted.exit_code, 0) << fitted.output;
  ASSERT_EQ(run(folder.path(), "tightloop train " + arguments + "--run.name a --train.stop_at 1").exit_code,
            0);
  const auto trained = run(folder.path(), "tightloop model show runs/a/config.yaml --json");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const auto total = [](const std::string& output) {
    return nlohmann::json::parse(output).at("parameters").at("total").get<int64_t>();
  };
  EXPECT_EQ(total(shown.output), total(trained.output));
  EXPECT_EQ(total(shown.output), nlohmann::json::parse(fitted.output).at("parameters").get<int64_t>());
  const auto unknown = run(folder.path(), "tightloop model show " + recipe("text"));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_TRUE(contains(unknown.output, "--data.train")) << unknown.output;
}

TEST(CpuMemory, ATrainingThatDoesNotFitIsRefused) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(), "tightloop train " + testing::tiny() +
                             "--model.width 512 --train.micro_batch 64 --train.memory_limit 0.05");
  EXPECT_EQ(outcome.exit_code, 5) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "train.memory_limit is 0.05 GiB")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "tightloop fit")) << outcome.output;
  EXPECT_FALSE(fs::exists(folder / "runs/quickstart"));
}

TEST(Recipes, AVocabularyOfTheProgramsChoiceIsNoWarning) {
  const TempFolder folder;
  std::string words;
  for (int i = 0; i < 300; ++i) words += "so much text and so little in it\n";
  write_file_whole(folder / "a.txt", words);
  const auto outcome = run(folder.path(), "tightloop train " + recipe("text") +
                                              "--data.train a.txt --train.device cpu --train.stop_at 1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "The text gives a vocabulary of ")) << outcome.output;
  EXPECT_FALSE(contains(outcome.output, "asked for")) << outcome.output;
}

TEST(Recipes, OneIsEnough) {
  const TempFolder folder;
  const auto outcome = run(folder.path(), "tightloop train " + recipe("text") + recipe("quickstart"));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "one recipe is enough")) << outcome.output;
}

TEST(Recipes, SayWhichStageComesBefore) {
  const TempFolder folder;
  fs::create_directories(folder / "configs");
  for (const char* name : {"nanochat-base.yaml", "nanochat-sft.yaml"})
    fs::copy_file(fs::path(TIGHTLOOP_SOURCE_DIR "/configs") / name, folder / "configs" / name);
  const std::string train = "tightloop train configs/nanochat-sft.yaml ";
  const auto before = run(folder.path(), train);
  EXPECT_EQ(before.exit_code, 2) << before.output;
  EXPECT_TRUE(contains(before.output, "First: tightloop train configs/nanochat-base.yaml")) << before.output;
  const auto hub = run(folder.path(), train + "--train.init_from Qwen/Qwen3-0.6B");
  EXPECT_EQ(hub.exit_code, 2) << hub.output;
  EXPECT_TRUE(contains(hub.output, "nothing is downloaded")) << hub.output;
  EXPECT_TRUE(contains(hub.output, "huggingface-cli download Qwen/Qwen3-0.6B --local-dir qwen3-0.6b"))
      << hub.output;
  for (int i = 0; i < 10; ++i) {
    const fs::path made = folder / ("runs/" + std::to_string(i) + "aaaaaa");
    fs::create_directories(made);
    write_file_whole(made / "config.yaml", "");
  }
  const auto many = run(folder.path(), train + "--train.init_from somewhere");
  EXPECT_TRUE(contains(many.output, " and 2 more")) << many.output;
}

TEST(Recipes, SayWhereTheirFilesComeFrom) {
  const TempFolder folder;
  // Those that start from another run name their files too, once it is there.
  const auto parent =
      run(folder.path(), "tightloop train " + testing::tiny() + "--train.steps 1 --run.name parent");
  ASSERT_EQ(parent.exit_code, 0) << parent.output;
  for (const char* name :
       {"gpt2-124m", "minimind-64m-lora", "minimind-64m-pretrain", "minimind-64m-sft",
        "minimind-64m-sft-padded", "minimind-moe-pretrain", "minimind-moe-sft", "nanochat-base",
        "nanochat-sft", "sft-gsm8k", "shakespeare-char", "translate-multi30k", "translate-tatoeba-zh"}) {
    const bool follows = contains(read_file(kRecipes + name + std::string(".yaml")), "init_from: runs/");
    const auto outcome = run(
        folder.path(), "tightloop train " + recipe(name) + (follows ? "--train.init_from runs/parent" : ""));
    EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "'data/")) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "mkdir -p data")) << outcome.output;
  }
  const auto mine =
      run(folder.path(), "tightloop train " + recipe("shakespeare-char") + "--data.train no.txt");
  EXPECT_EQ(mine.exit_code, 3) << mine.output;
  EXPECT_FALSE(contains(mine.output, "curl")) << mine.output;
}

TEST(Recipes, ThatReadFilesSayWhichTheyAre) {
  for (const auto& entry : fs::directory_iterator(kRecipes)) {
    if (!entry.is_regular_file()) continue;  // suites/
    const std::string text = read_file(entry.path());
    if (contains(text, "\n  train: [") || contains(text, "\n  mixture:")) {
      EXPECT_TRUE(contains(text, "\n  missing: ")) << entry.path();
    }
  }
}

TEST(Recipes, NameNoFolderThatUsersDoNotHave) {
  for (const auto& entry : fs::recursive_directory_iterator(kRecipes)) {
    if (!entry.is_regular_file()) continue;
    EXPECT_FALSE(contains(read_file(entry.path()), "shared/")) << entry.path();
  }
}

// On files that the program makes up in the format of those that each of them reads.
TEST(Recipes, AllTrainOnTheirSamples) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(), "python3 '" TIGHTLOOP_SOURCE_DIR
                         "/tools/try_recipes.py' --brief --program '" TIGHTLOOP_BINARY_DIR "/tightloop'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST(Recipes, SamplesLeaveFilesAsTheyAre) {
  const TempFolder folder;
  fs::create_directories(folder / "data/minimind");
  write_file_whole(folder / "data/minimind/sft_t2t_mini.jsonl", "mine");
  const auto again = run(folder.path(), "tightloop data sample " + recipe("minimind-64m-sft") + "--to .");
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_TRUE(contains(again.output, "is there already")) << again.output;
  EXPECT_EQ(read_file(folder / "data/minimind/sft_t2t_mini.jsonl"), "mine");
  const auto none = run(folder.path(), "tightloop data sample " + recipe("quickstart") + "--to .");
  EXPECT_EQ(none.exit_code, 0) << none.output;
  EXPECT_TRUE(contains(none.output, "reads no files")) << none.output;
  const auto open = run(folder.path(), "tightloop data sample " + recipe("text") + "--to .");
  EXPECT_EQ(open.exit_code, 2) << open.output;
  EXPECT_TRUE(contains(open.output, "--data.train")) << open.output;
}

// What the dial chose is in the values of the recipe, and in the first lines of a run.
TEST(Recipes, ShowWhatTheDepthDialChose) {
  const TempFolder folder;
  const auto shown =
      run(folder.path(), "tightloop config " + recipe("nanochat-base") + "--model.depth 20 --yaml");
  ASSERT_EQ(shown.exit_code, 0) << shown.output;
  for (const char* line :
       {"  width: 1280\n", "  heads: 10\n", "  vocab_size: 32768\n", "  step_tokens: 1048576\n",
        "  accumulate: 16\n", "  steps: 4980\n", "  warmup_steps: 40\n", "  decay_fraction: 0.65\n",
        "  min_lr: 0.05\n", "  clip: 0\n", "  seq_len: 2048\n", "  optimizer: \"muon\"\n"})
    EXPECT_TRUE(contains(shown.output, line)) << line << shown.output;
  ASSERT_EQ(run(folder.path(), "tightloop data sample " + recipe("nanochat-base") + "--to .").exit_code, 0);
  const auto trained = run(folder.path(), "tightloop train " + recipe("nanochat-base") +
                                              "--model.depth 1 --tokenizer.vocab_size 300 --data.seq_len 32 "
                                              "--train.micro_batch 2 --train.accumulate 1 --train.steps 1 "
                                              "--train.device cpu --train.precision fp32");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_TRUE(contains(trained.output, "model.depth 1: 1 layer of 128, 1 head of 128")) << trained.output;
}

// tools/try_recipes.py without --quick and --brief tries all of them so.
TEST(Recipes, OneOfEachKindTrainsResumesAnswersAndExports) {
  const TempFolder folder;
  const auto outcome =
      run(folder.path(), "python3 '" TIGHTLOOP_SOURCE_DIR
                         "/tools/try_recipes.py' --quick --program '" TIGHTLOOP_BINARY_DIR "/tightloop'");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

}  // namespace
}  // namespace tightloop
