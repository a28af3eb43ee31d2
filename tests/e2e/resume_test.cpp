// What a resumed run may change, and what it must notice.
#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace tightloop {
namespace {

using nlohmann::json;
using testing::contains;
using testing::Outcome;
using testing::run;
using testing::TempFolder;
using testing::tiny;

/// runs/a, 4 of 40 steps done.
void begin(const TempFolder& folder, const std::string& settings = tiny()) {
  const auto begun =
      run(folder.path(), "tightloop train " + settings + "--train.steps 40 --train.stop_at 4 --run.name a");
  ASSERT_EQ(begun.exit_code, 0) << begun.output;
}

Outcome resume(const TempFolder& folder, const std::string& more = "") {
  return run(folder.path(), "tightloop train --resume runs/a --train.stop_at 6 " + more);
}

/// All files of the run and what is in them.
std::string content(const TempFolder& folder) {
  return run(folder.path(), "find runs/a -type f ! -name '*lock*' | sort | xargs sha256sum").output;
}

void replace(const fs::path& file, const std::string& what, const std::string& by) {
  std::string text = read_file(file);
  const size_t at = text.find(what);
  ASSERT_NE(at, std::string::npos) << what;
  write_file_whole(file, text.replace(at, what.size(), by));
}

std::string text_settings() {
  return "'" TIGHTLOOP_SOURCE_DIR
         "/configs/text.yaml' --data.train a.txt --data.seq_len 32 --train.device cpu --train.precision fp32 "
         "--model.layers 1 --model.width 32 --model.heads 2 --train.micro_batch 4 --tokenizer.vocab_size 257 "
         "--train.accumulate 1 --train.eval_steps 0 ";
}

void write_text(const TempFolder& folder) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "Line " + std::to_string(i * 7919 % 1000) + " of the text.\n\n";
  write_file_whole(folder / "a.txt", text);
}

TEST(Resume, ARateOfZeroIsWarnedOfOnce) {
  const TempFolder folder;
  begin(folder);
  const auto resumed = resume(folder, "--train.lr 0");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_TRUE(contains(resumed.output, "train.lr is 0: nothing will be learned")) << resumed.output;
  const auto again = run(folder.path(), "tightloop train --resume runs/a --train.stop_at 8");
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_TRUE(contains(again.output, "Trained to step 8")) << again.output;
  EXPECT_FALSE(contains(again.output, "nothing will be learned")) << "nothing was changed\n" << again.output;
}

TEST(ResumeVerb, ARefusedOverrideTouchesNothing) {
  const TempFolder folder;
  begin(folder);
  const std::string before = content(folder);
  const std::pair<const char*, const char*> kRefused[] = {
      {"--model.layers 2", "model.layers: was 1, is 2"},
      {"--model.family llama --model.heads 1", "model.heads: was 2, is 1"},
      {"--train.optimizer muon", "train.optimizer: was \"adamw\", is \"muon\""},
      {"--data.seq_len 20", "data.seq_len: was"},
      {"--data.rows stream", "data.rows: was"},
      {"--train.seed 77", "train.seed: was"},
      {"--tasks.seed 77", "tasks.seed: was"},
      {"--lora.rank 2", "lora.rank: was 0, is 2"},
      {"--tokenizer.vocab_size 300", "tokenizer.vocab_size: was"},
      {"--run.name b", "run.name: was \"a\", is \"b\""},
  };
  for (const auto& [override, line] : kRefused) {
    const auto refused = resume(folder, override);
    EXPECT_EQ(refused.exit_code, 2) << override << ": " << refused.output;
    EXPECT_TRUE(contains(refused.output, line)) << override << ": " << refused.output;
    ASSERT_EQ(content(folder), before) << override;
  }
  const auto resumed = resume(folder);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  const auto asked =
      run(folder.path(), "tightloop generate --run runs/a --prompt 'reverse ab =' --max-tokens 2");
  EXPECT_EQ(asked.exit_code, 0) << asked.output;
}

TEST(ResumeVerb, WhatMayChangeIsListedAndKept) {
  const TempFolder folder;
  begin(folder);
  const auto resumed =
      resume(folder, "--train.lr 0.002 --train.save_steps 3 --train.micro_batch 4 --train.accumulate 2");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  for (const char* line : {"train.lr: was ", ", is 0.002", "train.save_steps: was 550, is 3",
                           "train.micro_batch: was 8, is 4", "train.accumulate: was 1, is 2"})
    EXPECT_TRUE(contains(resumed.output, line)) << resumed.output;
  EXPECT_TRUE(contains(read_file(folder / "runs/a/config.yaml"), "  lr: 0.002\n"));
  const auto again = run(folder.path(), "tightloop train --resume runs/a --train.stop_at 8");
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_FALSE(contains(again.output, "train.lr: was")) << again.output;
}

TEST(ResumeVerb, AKillAfterAChangeDoesNotLoseTheRun) {
  const TempFolder folder;
  begin(folder);
  ASSERT_EQ(resume(folder, "--train.lr 0.002").exit_code, 0);
  // As if the kill had come before the checkpoint: the settings are new, the checkpoint is old.
  fs::remove_all(folder / "runs/a/checkpoints/step-00000006");
  const auto before = run(folder.path(), "ls runs/a/checkpoints").output;
  const auto resumed = resume(folder);
  if (contains(before, "step-00000004")) {
    EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
    EXPECT_TRUE(contains(resumed.output, "train.lr: was")) << resumed.output;
  }
}

TEST(ResumeVerb, TrainingLongerSaysThatTheRateGoesUp) {
  const TempFolder folder;
  const auto whole = run(folder.path(), "tightloop train " + tiny() + "--train.steps 10 --run.name a");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const std::string before = content(folder);
  const auto done = run(folder.path(), "tightloop train --resume runs/a");
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_TRUE(contains(done.output, "nothing to do")) << done.output;
  EXPECT_TRUE(contains(done.output, "--train.steps 20")) << done.output;
  const auto fewer = run(folder.path(), "tightloop train --resume runs/a --train.steps 9");
  EXPECT_TRUE(contains(fewer.output, "has done 10 steps, more than 9")) << fewer.output;
  EXPECT_EQ(content(folder), before);
  const auto longer = run(folder.path(), "tightloop train --resume runs/a --train.steps 20");
  EXPECT_EQ(longer.exit_code, 0) << longer.output;
  EXPECT_TRUE(contains(longer.output, "train.steps: was 10, is 20")) << longer.output;
  EXPECT_TRUE(contains(longer.output, "The learning rate goes up again: it was ")) << longer.output;
  EXPECT_TRUE(contains(longer.output, "at step 10, it is ")) << longer.output;
  EXPECT_TRUE(fs::exists(folder / "runs/a/checkpoints/step-00000020"));
}

TEST(ResumeVerb, StoppingAtAStepIsGoneOnFromAsItIsSaid) {
  const TempFolder folder;
  begin(folder);
  const auto stuck = run(folder.path(), "tightloop train --resume runs/a");
  EXPECT_EQ(stuck.exit_code, 0) << stuck.output;
  EXPECT_TRUE(contains(stuck.output, "--train.stop_at 0")) << stuck.output;
  const auto rest = run(folder.path(), "tightloop train --resume runs/a --train.stop_at 0");
  EXPECT_EQ(rest.exit_code, 0) << rest.output;
  EXPECT_TRUE(fs::exists(folder / "runs/a/checkpoints/step-00000040"));
}

TEST(ResumeVerb, ChangedDataIsRefusedUnlessAsked) {
  const TempFolder folder;
  write_text(folder);
  begin(folder, text_settings());
  const std::string text = read_file(folder / "a.txt"), before = content(folder);
  auto edited = text;
  edited[edited.size() / 2] ^= 1;
  for (const std::string& other : {text + "More.\n", edited, text.substr(0, text.size() / 2)}) {
    write_file_whole(folder / "a.txt", other);
    const auto refused = resume(folder);
    EXPECT_EQ(refused.exit_code, 3) << refused.output;
    EXPECT_TRUE(contains(refused.output, "'a.txt': was " + std::to_string(text.size()))) << refused.output;
    EXPECT_TRUE(contains(refused.output, "--accept-changed-data")) << refused.output;
    ASSERT_EQ(content(folder), before);
  }
  write_file_whole(folder / "a.txt", text);  // at another time
  const auto resumed = resume(folder);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  fs::rename(folder / "a.txt", folder / "moved.txt");
  const auto moved =
      run(folder.path(), "tightloop train --resume runs/a --train.stop_at 8 --data.train moved.txt");
  EXPECT_EQ(moved.exit_code, 0) << moved.output;
  EXPECT_TRUE(contains(moved.output, "was 'a.txt', the same bytes")) << moved.output;
  write_file_whole(folder / "moved.txt", text + "More.\n");
  const auto accepted =
      run(folder.path(), "tightloop train --resume runs/a --train.stop_at 10 --accept-changed-data");
  EXPECT_EQ(accepted.exit_code, 0) << accepted.output;
  EXPECT_TRUE(contains(accepted.output, "'moved.txt': was")) << accepted.output;
}

TEST(ResumeVerb, AnEditedOrCutConfigIsRefused) {
  const TempFolder folder;
  begin(folder);
  const fs::path config = folder / "runs/a/config.yaml";
  const std::string whole = read_file(config);
  const std::pair<const char*, const char*> kEdits[] = {{"  lr: 0", "  lr: 9"},
                                                        {"  seq_len: ", "  seq_len: 1"},
                                                        {"  holdout: 0.0", "  holdout: 0.1"},
                                                        {"  warmup_steps: 5", "  warmup_steps: 7"}};
  for (const auto& [what, by] : kEdits) {
    replace(config, what, by);
    const auto refused = resume(folder);
    EXPECT_EQ(refused.exit_code, 2) << what << refused.output;
    EXPECT_TRUE(contains(refused.output, ": was ")) << refused.output;
    write_file_whole(config, whole);
  }
  for (const double part : {0.9, 0.5, 0.1, 0.0}) {
    write_file_whole(config, whole.substr(0, static_cast<size_t>(part * static_cast<double>(whole.size()))));
    const auto refused = resume(folder);
    EXPECT_NE(refused.exit_code, 0) << part << refused.output;
    for (const char* verb : {"generate --run runs/a --prompt x", "export --run runs/a --to out"}) {
      const auto asked = run(folder.path(), std::string("tightloop ") + verb);
      if (part < 0.9) {
        EXPECT_NE(asked.exit_code, 0) << part << verb << asked.output;
      }
      fs::remove_all(folder / "out");
    }
  }
  write_file_whole(config, whole);
  replace(config, "  heads: 2", "  heads: 1");  // the shapes stay the same
  for (const char* verb :
       {"generate --run runs/a --prompt x", "eval --run runs/a", "export --run runs/a --to out",
        "inspect loss --run runs/a", "inspect batch --run runs/a"}) {
    const auto asked = run(folder.path(), std::string("tightloop ") + verb);
    EXPECT_EQ(asked.exit_code, 2) << verb << asked.output;
    EXPECT_TRUE(contains(asked.output, "model.heads: was 2, is 1")) << verb << asked.output;
  }
  write_file_whole(config, whole);
  EXPECT_EQ(resume(folder).exit_code, 0);
}

TEST(ResumeVerb, ATokenizerThatIsNotTheCheckpointsIsRefused) {
  const TempFolder folder;
  begin(folder);
  const fs::path tokenizer = folder / "runs/a/tokenizer/tokenizer.json";
  const std::string whole = read_file(tokenizer);
  replace(tokenizer, "\"a\": 97", "\"a\": 1000");
  replace(tokenizer, "\"b\": 98", "\"b\": 97");
  replace(tokenizer, "\"a\": 1000", "\"a\": 98");
  for (const char* verb :
       {"train --resume runs/a --train.stop_at 6", "generate --run runs/a --prompt x", "eval --run runs/a",
        "export --run runs/a --to out", "inspect loss --run runs/a", "inspect batch --run runs/a",
        "generate --run runs/a/checkpoints/step-00000004 --prompt x"}) {
    const auto refused = run(folder.path(), std::string("tightloop ") + verb);
    EXPECT_EQ(refused.exit_code, 4) << verb << refused.output;
    EXPECT_TRUE(contains(refused.output, "tokenizer")) << verb << refused.output;
  }
  fs::remove(tokenizer);
  const auto gone = resume(folder);
  EXPECT_NE(gone.exit_code, 0) << gone.output;
  EXPECT_FALSE(fs::exists(tokenizer)) << "no other one is made";
  write_file_whole(tokenizer, whole);
  EXPECT_EQ(resume(folder).exit_code, 0);
}

TEST(ResumeVerb, CheckpointsOfAnOlderVersionAreTakenWithAWarning) {
  const TempFolder folder;
  begin(folder);
  const fs::path path = folder / "runs/a/checkpoints/step-00000004/state.json";
  auto state = json::parse(read_file(path));
  for (const char* key : {"settings", "tokenizer", "data", "consumed"})
    EXPECT_EQ(state["metadata"].erase(key), 1u);
  state["format"] = 1;
  state.erase("xxh3");
  write_file_whole(path, state.dump());
  const auto asked = run(folder.path(), "tightloop generate --run runs/a --prompt x --max-tokens 2");
  EXPECT_EQ(asked.exit_code, 0) << asked.output;
  EXPECT_TRUE(contains(asked.output, "older version")) << asked.output;
  const auto refused = resume(folder, "--model.layers 2");
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  const auto resumed = resume(folder);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_TRUE(contains(resumed.output, "older version")) << resumed.output;
}

TEST(ResumeVerb, OtherDocumentsOfTheSameFilesAreRefusedUnlessAsked) {
  const TempFolder folder;
  write_text(folder);
  begin(folder, text_settings());
  const fs::path path = folder / "runs/a/checkpoints/step-00000004/state.json";
  auto state = json::parse(read_file(path));
  auto& documents = state["metadata"]["documents"]["train"]["documents"];
  const auto are = documents.get<uint64_t>();
  documents = are + 1;  // as a version would have it that took one record more
  state["format"] = 1;
  state.erase("xxh3");
  write_file_whole(path, state.dump());
  const std::string settings = read_file(folder / "runs/a/config.yaml");
  const std::string line =
      "documents of train: were " + std::to_string(are + 1) + ", are " + std::to_string(are) + "\n";
  const auto refused = resume(folder);
  EXPECT_EQ(refused.exit_code, 3) << refused.output;
  EXPECT_TRUE(contains(refused.output, line)) << refused.output;
  EXPECT_EQ(read_file(folder / "runs/a/config.yaml"), settings);
  const auto accepted = resume(folder, "--accept-changed-data");
  EXPECT_EQ(accepted.exit_code, 0) << accepted.output;
  EXPECT_TRUE(contains(accepted.output, line)) << accepted.output;
}

TEST(ResumeVerb, TextWithALiteralEndOfTextGivesTheSameTokens) {
  const fs::path gpt2 = testing::shared_data() / "tokenizers/gpt2";
  SKIP_WITHOUT(gpt2);
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 300; ++i) text += "A story of " + std::to_string(i) + ".<|endoftext|>\n\n";
  write_file_whole(folder / "a.txt", text);
  begin(folder, text_settings() + "--tokenizer.path '" + gpt2.string() + "' ");
  const auto tokens = [](const std::string& output) {
    const size_t at = output.find("training tokens"), from = output.rfind(';', at);
    return at == std::string::npos ? "" : output.substr(from, at - from);
  };
  const auto first = read_file(folder / "runs/a/log.txt");
  const auto rest = resume(folder);
  ASSERT_EQ(rest.exit_code, 0) << rest.output;
  ASSERT_FALSE(tokens(first).empty()) << first;
  EXPECT_EQ(tokens(rest.output), tokens(first)) << rest.output;
}

}  // namespace
}  // namespace tightloop
