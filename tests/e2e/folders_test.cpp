// Runs, caches and exports on disk: nothing is lost when a process dies, fails or is not alone.
#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::contains;
using testing::Outcome;
using testing::run;
using testing::TempFolder;
using testing::tiny;

const std::string kProgram = "'" TIGHTLOOP_BINARY_DIR "/tightloop' ";
const std::string kFoldersText =
    "'" TIGHTLOOP_SOURCE_DIR
    "/configs/text.yaml' --train.device cpu --train.steps 3 --train.eval_steps 0 "
    "--tokenizer.vocab_size 300 --data.seq_len 32 --model.width 32 --model.heads 2 "
    "--model.layers 1 --train.micro_batch 4 ";

/// Waits up to 30 s until a shell condition holds.
std::string when(const std::string& condition) {
  return "for i in $(seq 600); do " + condition + " && break; sleep 0.05; done; ";
}

std::string some_text(size_t documents) {
  std::string text;
  for (size_t i = 0; i < documents; ++i)
    text += "Document number " + std::to_string(i * 7919 % 100003) + " says that cats sit on mats.\n\n";
  return text;
}

TEST(Folders, ARunThatCannotBeginLeavesTheOneItWasToReplace) {
  const TempFolder folder;
  ASSERT_EQ(run(folder.path(), "tightloop train " + tiny() + "--train.steps 2 --run.name a").exit_code, 0);
  const auto outcome = run(
      folder.path(), "tightloop train " + kFoldersText + "--data.train nosuch.txt --run.name a --overwrite");
  EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
  EXPECT_EQ(run(folder.path(), "ls -A runs").output, "a\n");
  const auto use = run(folder.path(), "tightloop generate --run runs/a --prompt x --max-tokens 2");
  EXPECT_EQ(use.exit_code, 0) << use.output;
}

TEST(Folders, AKillBeforeTheFirstCheckpointBringsTheReplacedRunBack) {
  const TempFolder folder;
  ASSERT_EQ(run(folder.path(), "tightloop train " + tiny() + "--train.steps 2 --run.name a").exit_code, 0);
  const auto killed = run(
      folder.path(), kProgram + "train " + tiny() +
                         "--train.steps 1000000 --train.save_steps 0 --run.name a --overwrite & child=$!; " +
                         when("grep -q global_step runs/a/metrics.jsonl 2>/dev/null && "
                              "! ls runs/a/checkpoints/step* 2>/dev/null") +
                         "tightloop generate --run runs/a --prompt x; tightloop eval --run a@best; "
                         "kill -KILL $child; wait $child");
  EXPECT_EQ(killed.exit_code, 137) << killed.output;
  EXPECT_TRUE(contains(killed.output, "runs/.a.replaced")) << "while it is being replaced: " << killed.output;
  EXPECT_FALSE(contains(killed.output, "so there is no '@best'")) << killed.output;
  ASSERT_EQ(run(folder.path(), "cp -r runs again").exit_code, 0);
  const auto listed = run(folder.path(), "tightloop runs again; tightloop checkpoint ls again/a");
  EXPECT_TRUE(contains(listed.output, "'again/a' is the earlier run again")) << listed.output;
  EXPECT_TRUE(contains(listed.output, "finished")) << listed.output;
  const auto checked = run(folder.path(), "cp -r runs runs2; tightloop checkpoint ls runs2/a");
  EXPECT_TRUE(contains(checked.output, "'runs2/a' is the earlier run again")) << checked.output;
  const auto use = run(folder.path(), "tightloop generate --prompt x --max-tokens 2");
  EXPECT_EQ(use.exit_code, 0) << use.output;
  EXPECT_TRUE(contains(use.output, "'runs/a' is the earlier run again")) << use.output;
  EXPECT_EQ(run(folder.path(), "ls -A runs").output, "a\n");
}

TEST(Folders, TheFolderOfARecipeIsNotARun) {
  const TempFolder folder;
  fs::create_directories(folder / "exp");
  ASSERT_EQ(run(folder.path(), "cp '" TIGHTLOOP_SOURCE_DIR "/configs/text.yaml' exp/config.yaml").exit_code,
            0);
  write_file_whole(folder / "exp" / "data.txt", some_text(400));
  const std::string into = "--data.train exp/data.txt --run.dir . --run.name exp ";
  for (const std::string overwrite : {"", "--overwrite"}) {
    const auto outcome = run(folder.path(), "tightloop train exp/config.yaml " + into + overwrite);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
    EXPECT_EQ(run(folder.path(), "ls -A exp").output, "config.yaml\ndata.txt\n") << outcome.output;
  }
}

TEST(Folders, AMissingConfigIsNamedAndComesBackWithAResume) {
  const TempFolder folder;
  ASSERT_EQ(run(folder.path(), "tightloop train " + tiny() + "--train.steps 2 --run.name a").exit_code, 0);
  fs::remove(folder / "runs" / "a" / "config.yaml");
  const std::string use = "tightloop generate --run runs/a --prompt x --max-tokens 2";
  const auto outcome = run(folder.path(), use);
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "config.yaml is missing")) << outcome.output;
  const auto again = run(folder.path(), "tightloop train --resume runs/a --train.steps 4 && " + use);
  EXPECT_EQ(again.exit_code, 0) << again.output;
}

TEST(Folders, ARunKilledWhileItTokenizesStartsAgain) {
  const TempFolder folder;
  write_file_whole(folder / "large.txt", some_text(400'000));
  write_file_whole(folder / "small.txt", some_text(400));
  for (const std::string signal : {"KILL", "TERM", "INT"}) {
    const auto killed =
        run(folder.path(), kProgram + "train " + kFoldersText + "--data.train large.txt --run.name " +
                               signal + " & child=$!; " + when("test -d runs/" + signal + "/checkpoints") +
                               "kill -" + signal + " $child; wait $child");
    ASSERT_NE(killed.exit_code, 0) << killed.output;
    if (signal == "KILL") {
      const auto resumed = run(folder.path(), "tightloop train --resume runs/KILL");
      EXPECT_EQ(resumed.exit_code, 4) << resumed.output;
      EXPECT_TRUE(contains(resumed.output, "no checkpoint yet")) << resumed.output;
    }
    const auto again =
        run(folder.path(), "tightloop train " + kFoldersText + "--data.train small.txt --run.name " + signal);
    EXPECT_EQ(again.exit_code, 0) << again.output;
  }
}

TEST(Folders, TwoTrainingsIntoOneRunAreRefused) {
  const TempFolder folder;
  const auto outcome = run(
      folder.path(), kProgram + "train " + tiny() + "--train.steps 1000000 --run.name a & child=$!; " +
                         when("grep -q global_step runs/a/metrics.jsonl 2>/dev/null") + "tightloop train " +
                         tiny() + "--run.name a --overwrite; echo second: $?; kill -INT $child; wait $child");
  EXPECT_EQ(outcome.exit_code, 130) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "second: 2")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "is in use by process")) << outcome.output;
  EXPECT_EQ(run(folder.path(), "tightloop train --resume runs/a --train.steps 1 && ls -A runs").exit_code, 0);
}

/// Both commands at once, each with its exit code in the output.
Outcome both(const fs::path& folder, const std::string& one, const std::string& two) {
  return run(folder, "{ " + one + "; echo one: $?; } & { " + two + "; echo two: $?; } & wait");
}

TEST(Folders, TwoRunsMayShareACache) {
  const TempFolder folder;
  write_file_whole(folder / "text.txt", some_text(50'000));
  ASSERT_EQ(
      run(folder.path(), "tightloop tokenizer train text.txt --vocab-size 300 --output tokenizer").exit_code,
      0);
  for (const std::string cache : {"start", "live"}) {
    const std::string command =
        "tightloop train " + kFoldersText +
        "--tokenizer.path tokenizer --data.train text.txt --data.cache cache --data.tokenize " + cache;
    const auto outcome =
        both(folder.path(), command + " --run.name a-" + cache, command + " --run.name b-" + cache);
    EXPECT_TRUE(contains(outcome.output, "one: 0") && contains(outcome.output, "two: 0")) << outcome.output;
  }
  EXPECT_EQ(run(folder.path(), "find cache -name '*partial*' -o -name .lock").output, "");
}

TEST(Folders, TwoPreparesIntoOneFolderShareTheWork) {
  const TempFolder folder;
  write_file_whole(folder / "text.txt", some_text(20'000));
  ASSERT_EQ(
      run(folder.path(), "tightloop tokenizer train text.txt --vocab-size 300 --output tokenizer").exit_code,
      0);
  const std::string command = "tightloop prepare " + kFoldersText +
                              "--tokenizer.path tokenizer --data.train text.txt --output shards";
  const auto outcome = both(folder.path(), command, command);
  EXPECT_TRUE(contains(outcome.output, "one: 0") && contains(outcome.output, "two: 0")) << outcome.output;
}

TEST(Folders, TwoExportsIntoOneFolderLeaveOneWholeModel) {
  const TempFolder folder;
  ASSERT_EQ(run(folder.path(), "tightloop train " + tiny() + "--train.steps 2 --run.name a").exit_code, 0);
  const std::string command = "tightloop export --run runs/a --to hf";
  const auto outcome = both(folder.path(), command, command);
  EXPECT_TRUE(contains(outcome.output, "one: 0") || contains(outcome.output, "two: 0")) << outcome.output;
  EXPECT_FALSE(contains(outcome.output, "filesystem error")) << outcome.output;
  EXPECT_EQ(run(folder.path(), "tightloop generate --model hf --prompt x --max-tokens 2").exit_code, 0);
  EXPECT_EQ(run(folder.path(), "ls -Ad hf*").output, "hf\n");
}

TEST(Folders, ADamagedCheckpointIsPassedOverAndNamed) {
  const TempFolder folder;
  const std::string steps = "--train.steps 4 --train.save_steps 2 --train.keep_checkpoints 0 ";
  ASSERT_EQ(run(folder.path(), "tightloop train " + tiny() + steps + "--run.name a").exit_code, 0);
  run(folder.path(), "truncate -s 1000 runs/a/checkpoints/step-00000004/model.safetensors");
  for (const char* verb :
       {"generate --run runs/a --prompt x --max-tokens 2", "eval --run runs/a", "train --resume runs/a"}) {
    const auto outcome = run(folder.path(), "tightloop " + std::string(verb));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    const std::string both_steps =
        "The checkpoint of step 4 is passed over, and that of step 2 taken instead";
    EXPECT_TRUE(contains(outcome.output, both_steps)) << outcome.output;
    EXPECT_EQ(outcome.output.find(both_steps), outcome.output.rfind(both_steps)) << outcome.output;
    EXPECT_TRUE(contains(outcome.output, "step-00000004/model.safetensors' is truncated")) << outcome.output;
  }
  const auto mended = run(folder.path(), "tightloop eval --run runs/a");
  EXPECT_FALSE(contains(mended.output, "passed over")) << mended.output;
}

TEST(Folders, WhatTheSystemRefusesIsASentence) {
  const TempFolder folder;
  ASSERT_EQ(run(folder.path(), "ln -s loop loop; printf text > file").exit_code, 0);
  const std::string name(300, 'x');
  const std::pair<std::string, int> commands[] = {
      {"tightloop train " + tiny() + "--run.dir loop", 2},
      {"tightloop train " + tiny() + "--run.dir file", 2},
      {"tightloop train " + tiny() + "--run.name " + name, 2},
      {"tightloop train " + tiny() + "--run.dir /proc/none", 2},
      {"tightloop train " + kFoldersText + "--data.train loop", 3},
      {"tightloop train " + kFoldersText + "--data.train " + name, 3},
      {"tightloop train loop", 2},
      {"tightloop train --resume loop", 3},
      {"tightloop generate --run loop --prompt x", 3},
      {"tightloop tokenizer encode --tokenizer loop < file", 3},
      {"TMPDIR=/no/such/folder tightloop bench step " + tiny(), 2}};
  for (const auto& [command, code] : commands) {
    const auto outcome = run(folder.path(), command);
    EXPECT_EQ(outcome.exit_code, code) << command << '\n' << outcome.output;
    EXPECT_FALSE(contains(outcome.output, "filesystem error")) << outcome.output;
  }
}

TEST(Folders, ADataFileWhoseNameIsNotUtf8IsRefusedAtTheStart) {
  const TempFolder folder;
  write_file_whole(folder / "caf\xe9.txt", some_text(400));
  const auto named = run(folder.path(), "tightloop train " + kFoldersText + "--data.train 'caf\xe9.txt'");
  EXPECT_EQ(named.exit_code, 2) << named.output;
  const auto matched = run(folder.path(), "tightloop train " + kFoldersText + "--data.train '*.txt'");
  EXPECT_EQ(matched.exit_code, 3) << matched.output;
  for (const auto& outcome : {named, matched})
    EXPECT_TRUE(contains(outcome.output, "not UTF-8")) << outcome.output;
  EXPECT_FALSE(fs::exists(folder / "runs/text"));
}

}  // namespace
}  // namespace tightloop
