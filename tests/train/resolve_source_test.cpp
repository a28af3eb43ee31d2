#include "train/settings/resolve_source.h"

#include "core/files.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::TempFolder;

/// A recipe's settings, the command line's, and what became of them.
struct Settled {
  Recipe recipe;
  std::vector<std::string> notes;

  Settled(const std::string& yaml, const std::vector<std::string>& settings) {
    Config config = recipe.bind();
    config.load_text(yaml, "a recipe");
    config.apply(settings);
    notes = resolve_source(recipe, config);
  }
  std::string said() const {
    std::string all;
    for (const auto& note : notes) all += note + "\n";
    return all;
  }
};

class SettleSource : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    write_file_whole(folder_ / name, bytes);
    return (folder_ / name).string();
  }
  const TempFolder folder_;
  const std::string text_ = write("a.txt", "Once upon a time.\n");
  const std::string chat_ = write("chats.jsonl", R"({"prompt":"q","completion":"a"})");
};

const char* const kTasks =
    "data: {source: tasks, rows: pad, seq_len: 24, loss_after: ' ='}\ntokenizer: {vocab_size: 257}\n";

TEST_F(SettleSource, FilesTakeThePlaceOfGeneratedData) {
  const Settled it(kTasks, {"--data.train", text_});
  EXPECT_EQ(it.recipe.data.source, DataSource::kText);
  EXPECT_EQ(it.recipe.data.loss_after, "");
  EXPECT_EQ(it.recipe.data.rows, RowKind::kStream);
  EXPECT_EQ(it.recipe.data.seq_len, 128);
  EXPECT_EQ(it.recipe.tokenizer.vocab_size, 4096);
  EXPECT_NE(it.said().find("a.txt holds plain text: data.source text"), std::string::npos) << it.said();
  for (const char* key : {"data.loss_after", "data.rows", "data.seq_len", "tokenizer.vocab_size"})
    EXPECT_NE(it.said().find(key), std::string::npos) << it.said();
}

TEST_F(SettleSource, WhatTheCommandLineSaysStays) {
  const Settled it(kTasks, {"--data.train", text_, "--data.seq_len=24", "--tokenizer.vocab_size", "257",
                            "--data.rows", "pad", "--data.loss_after", "=>"});
  EXPECT_EQ(it.recipe.data.seq_len, 24);
  EXPECT_EQ(it.recipe.data.rows, RowKind::kPad);
  EXPECT_EQ(it.recipe.data.loss_after, "=>");
  EXPECT_EQ(it.recipe.tokenizer.vocab_size, 257);
  EXPECT_EQ(Settled(kTasks, {"--data.train", text_, "--data.source", "tasks"}).recipe.data.source,
            DataSource::kTasks);
  EXPECT_EQ(Settled("data: {source: text}", {"--data.train", chat_}).recipe.data.source, DataSource::kText);
}

TEST_F(SettleSource, ARecipeWithoutFilesStaysAsItIs) {
  const Settled it(kTasks, {"--train.steps", "5"});
  EXPECT_EQ(it.recipe.data.source, DataSource::kTasks);
  EXPECT_EQ(it.recipe.data.seq_len, 24);
  EXPECT_TRUE(it.notes.empty());
  EXPECT_EQ(Settled("train: {steps: 5}", {}).recipe.data.source, DataSource::kText);
}

TEST_F(SettleSource, ARecipeOfConversationsNeedsSome) {
  const char* const sft = "data: {source: spelling, format: chat, rows: pad, seq_len: 340}";
  const Settled it(sft, {"--data.train", chat_});
  EXPECT_EQ(it.recipe.data.source, DataSource::kJsonl);
  EXPECT_EQ(it.recipe.data.format, RecordFormat::kChat);
  EXPECT_EQ(it.recipe.data.rows, RowKind::kPad);
  EXPECT_NE(it.said().find("conversations (prompt, completion): data.source jsonl, format chat"),
            std::string::npos)
      << it.said();
  const std::string questions = write("q.jsonl", R"({"question":"q","answer":"a"})");
  EXPECT_EQ(Settled(sft, {"--data.train", questions}).recipe.data.format, RecordFormat::kQuestion);
  const char* const stage = "data: {source: spelling}\ntrain: {stage: sft}";
  for (const std::string& file : {text_, write("t.jsonl", R"({"text":"a"})")}) {
    testing::error_of(ExitCode::kData, [&] { Settled(stage, {"--data.train", file}); });
    const auto message = testing::error_of(ExitCode::kData, [&] { Settled(sft, {"--data.train", file}); });
    EXPECT_NE(message.find("this recipe learns conversations"), std::string::npos) << message;
    EXPECT_NE(message.find(R"({"messages": [{"role": "user")"), std::string::npos) << message;
  }
}

TEST_F(SettleSource, ATranslatorReadsPairs) {
  const std::string pairs = write("pairs.tsv", "one\teins\ntwo\tzwei\n");
  const char* const toy =
      "data: {source: toy_pairs, seq_len: 32}\nmodel: {family: seq2seq}\ntokenizer: {type: unigram, "
      "vocab_size: "
      "160}";
  const Settled it(toy, {"--data.train", pairs});
  EXPECT_EQ(it.recipe.data.source, DataSource::kPairs);
  EXPECT_EQ(it.recipe.tokenizer.vocab_size, 4096);
  testing::error_of(ExitCode::kData, [&] { Settled(toy, {"--data.train", text_}); });
}

TEST_F(SettleSource, EntriesOfAMixtureAreSettledToo) {
  const Settled it("data: {mixture: [name=a train=" + chat_ + ", name=b source=tasks]}", {});
  EXPECT_EQ(it.recipe.data.mixture[0], "name=a train=" + chat_ + " source=jsonl");
  EXPECT_EQ(it.recipe.data.mixture[1], "name=b source=tasks");
  EXPECT_EQ(it.recipe.data.source, DataSource::kText);
  EXPECT_ANY_THROW(Settled("data: {mixture: [name=a train=" + chat_ + "]}", {"--data.train", text_}));
  EXPECT_NO_THROW(Settled("data: {mixture: [name=a, name=b train=" + chat_ + "]}", {"--data.train", chat_}));
  const Settled own("data: {mixture: [name=a source=tasks, name=b source=spelling format=chat], rows: pack}",
                    {"--data.train", chat_});
  EXPECT_TRUE(own.recipe.data.mixture.empty());
  EXPECT_EQ(own.recipe.data.source, DataSource::kJsonl);
}

}  // namespace
}  // namespace tightloop
