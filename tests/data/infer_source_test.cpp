#include "data/store/infer_source.h"

#include <algorithm>

#include "data/gzip.h"
#include "data/read/named_files.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::TempFolder;

class InferSource : public ::testing::Test {
 protected:
  InferredSource infer(const std::string& name, const std::string& bytes, bool pairs = false) {
    write_file_whole(folder_ / name, bytes);
    DataConfig data;
    data.train = {(folder_ / name).string()};
    return infer_source(data, pairs);
  }
  TempFolder folder_;
};

TEST_F(InferSource, GoesByTheContentAndNotByTheName) {
  const std::string chat =
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})";
  const struct {
    std::string bytes, source, format, holds;
  } kCases[] = {
      {"Once upon a time\n\nthere was", "text", "", "plain text"},
      {"[Chapter 1]\nIt was {dark}.", "text", "", "plain text"},
      {"one\teins\ntwo\tzwei\n", "text", "", "plain text"},
      {chat + "\n", "jsonl", "chat", "conversations (messages)"},
      {"\xef\xbb\xbf" + chat, "jsonl", "chat", "conversations (messages)"},
      {"[\n  " + chat + "]", "jsonl", "chat", "conversations (messages)"},
      {R"({"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}]})", "jsonl", "chat",
       "conversations (conversations)"},
      {R"({"instruction":"q","input":"","output":"a"})", "jsonl", "chat",
       "conversations (instruction, output)"},
      {R"({"prompt":"q","completion":"a"})", "jsonl", "chat", "conversations (prompt, completion)"},
      {R"({"text":"a"})", "jsonl", "text", "texts (text)"},
      {"{\"text\": broken\n{\"question\":\"q\",\"answer\":\"a\"}", "jsonl", "question",
       "questions and answers"},
      {R"({"body":"a"})", "jsonl", "", "records of an unknown shape"},
      {"", "text", "", "plain text"},
  };
  for (const auto& it : kCases)
    for (const bool packed : {false, true}) {
      const InferredSource found = infer("a.dat", packed ? testing::gzip(it.bytes) : it.bytes);
      EXPECT_EQ(name_of(found.source), it.source) << it.bytes;
      EXPECT_EQ(found.format ? name_of(*found.format) : "", it.format) << it.bytes;
      EXPECT_EQ(found.holds, it.holds) << it.bytes;
    }
  EXPECT_EQ(infer("a.txt", "PAR1 and then something").source, DataSource::kParquet);
}

TEST_F(InferSource, OfATranslatorItIsPairs) {
  for (const char* bytes : {"one\teins\ntwo\tzwei\n", R"([["one","eins"],["two","zwei"]])",
                            "[\"one\",\"eins\"]\n", R"({"source":"one","target":"eins"})"})
    EXPECT_EQ(infer("a.dat", bytes, true).source, DataSource::kPairs) << bytes;
  const std::string message =
      testing::error_of(ExitCode::kData, [&] { infer("a.txt", "no tab\nin these\nlines\n", true); });
  EXPECT_NE(message.find("--data.train_target"), std::string::npos) << message;
  DataConfig data;
  data.train = data.train_target = {(folder_ / "a.txt").string()};
  EXPECT_EQ(infer_source(data, true).source, DataSource::kPairs);
}

TEST_F(InferSource, AnEmptyFileIsPassedOverAndAFolderOfShardsIsKnown) {
  write_file_whole(folder_ / "a", "");
  write_file_whole(folder_ / "b", R"({"text":"a"})");
  DataConfig data;
  data.train = {(folder_ / "a").string(), (folder_ / "b").string()};
  EXPECT_EQ(infer_source(data, false).source, DataSource::kJsonl);
  make_folder(folder_ / "shards");
  write_file_whole(folder_ / "shards/train-00000.shard", "");
  data.train = {(folder_ / "shards").string()};
  EXPECT_EQ(infer_source(data, false).source, DataSource::kShards);
}

TEST_F(InferSource, FilesOfDifferentKindsAreRefused) {
  write_file_whole(folder_ / "a.txt", "Once upon a time");
  write_file_whole(folder_ / "a.jsonl", R"({"text":"a"})");
  write_file_whole(folder_ / "a.tsv", "one\teins\n");
  write_file_whole(folder_ / "pairs.json", R"([["one","eins"]])");
  const std::string text = (folder_ / "a.txt").string(), json = (folder_ / "a.jsonl").string();
  const auto refusal = [&](const std::vector<std::string>& train, const std::vector<std::string>& val,
                           bool pairs = false) {
    DataConfig data;
    data.train = train, data.val = val;
    return testing::error_of(ExitCode::kData, [&] { infer_source(data, pairs); });
  };
  for (const std::string& message : {refusal({text}, {json}), refusal({text, json}, {})}) {
    EXPECT_NE(message.find(text), std::string::npos) << message;
    EXPECT_NE(message.find(json), std::string::npos) << message;
    EXPECT_NE(message.find("JSON records"), std::string::npos) << message;
  }
  refusal({(folder_ / "a.tsv").string()}, {(folder_ / "pairs.json").string()}, true);
  DataConfig data;
  data.train = data.val = {json};
  EXPECT_EQ(infer_source(data, false).source, DataSource::kJsonl);
}

TEST_F(InferSource, ACsvTableIsRefusedWithTheCommandThatConvertsIt) {
  const std::string rows =
      "id,text,label\n1,\"one, two\nand three\",good\n2,\"a \"\"word\"\"\",bad\n3,plain,good\n";
  std::string semicolons = rows;
  std::ranges::replace(semicolons, ',', ';');
  const struct {
    std::string name, bytes, says;
  } kTables[] = {
      {"data.csv", rows, "columns id, text, label"},
      {"DATA.CSV", "\xef\xbb\xbf" + rows, "columns id, text, label"},
      {"short.csv", "question,answer\nq,a", "short.jsonl"},
      {"packed.csv.gz", testing::gzip(rows), "Unpack it, and turn it into JSONL"},
      {"de.csv", semicolons, "delimiter=';'"},
  };
  for (const auto& it : kTables) {
    const std::string message = testing::error_of(ExitCode::kData, [&] { infer(it.name, it.bytes); });
    EXPECT_NE(message.find(it.says), std::string::npos) << message;
    EXPECT_NE(message.find("python3 -c \"import csv,json,sys; "), std::string::npos) << message;
    EXPECT_NE(message.find("--data.source text"), std::string::npos) << message;
  }
  EXPECT_EQ(infer("list.csv", "Roses are red, he said.\nAnd then\nhe left, and, well, came back.\n").source,
            DataSource::kText);
  EXPECT_EQ(infer("numbers.csv", "1,2\n3,4\n").source, DataSource::kText);
  EXPECT_EQ(infer("data.txt", rows).source, DataSource::kText);
  EXPECT_EQ(infer("pairs.csv", "one\teins\ntwo\tzwei\n", true).source, DataSource::kPairs);
}

TEST_F(InferSource, RecordsThatAreReadAsTextAreDoubted) {
  write_file_whole(folder_ / "a.txt", R"({"text":"a"})");
  DataConfig data;
  data.train = {(folder_ / "a.txt").string()};
  const auto doubts = doubts_about_files(data);
  ASSERT_EQ(doubts.size(), 1u);
  EXPECT_NE(doubts[0].find("--data.source jsonl"), std::string::npos) << doubts[0];
  data.source = DataSource::kJsonl;
  EXPECT_TRUE(doubts_about_files(data).empty());
  write_file_whole(folder_ / "b.txt", "Once upon a time");
  data.source = DataSource::kText, data.val = data.train, data.train = {(folder_ / "b.txt").string()};
  EXPECT_EQ(doubts_about_files(data).size(), 1u);
}

}  // namespace
}  // namespace tightloop
