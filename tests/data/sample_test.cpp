#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/files.h"
#include "data/byte_tokenizer.h"
#include "data/dataset.h"
#include "data/generate/sample_files.h"
#include "support.h"

namespace tightloop {
namespace {

using nlohmann::json;

TEST(SampleFiles, HaveNamesThatThePatternMatches) {
  EXPECT_EQ(name_matching("data/shard_0[0-5]???.parquet"), "data/shard_00000.parquet");
  EXPECT_EQ(name_matching("a/train-*.parquet"), "a/train-00000.parquet");
  EXPECT_EQ(name_matching("a[b.txt"), "a[b.txt");
}

// Every format is read back by the reader that the settings name, and nothing in it is bad.
TEST(SampleFiles, AreReadAsTheSettingsSay) {
  const testing::ByteTokenizer tokenizer({"<|bos|>", "<|user_start|>", "<|user_end|>", "<|assistant_start|>",
                                          "<|assistant_end|>", "<|python_start|>", "<|python_end|>",
                                          "<|output_start|>", "<|output_end|>"});
  ChatConfig chat;
  chat.form = ChatForm::kNanochat;
  for (const std::string entry :
       {"source=text train=a.txt", "source=jsonl format=text train=b.jsonl",
        "source=jsonl format=chat train=c.jsonl", "source=jsonl format=gsm8k train=d.jsonl val=e.jsonl",
        "source=jsonl format=choice train=f.jsonl",
        "source=parquet format=chat train=g-*.parquet val=h-*.parquet"}) {
    SCOPED_TRACE(entry);
    const testing::TempFolder folder;
    DataConfig config;
    config.mixture = {entry};
    const auto files = write_sample_files(config, {}, folder.path());
    for (const SampleFile& file : files) EXPECT_TRUE(file.written && is_file(file.path)) << file.path;
    for (const SampleFile& file : write_sample_files(config, {}, folder.path())) EXPECT_FALSE(file.written);
    for (const char* key : {"train=", "val="})
      if (const size_t at = config.mixture[0].find(key); at != std::string::npos)
        config.mixture[0].insert(at + std::string(key).size(), folder.path().string() + "/");
    const Dataset dataset = load_dataset(config, {}, tokenizer, chat);
    EXPECT_EQ(dataset.bad.total(), 0u) << dataset.bad.report();
    EXPECT_GT(dataset.train->size(), 200u);
  }
}

TEST(SampleFiles, HaveTheFieldsOfMinimindAsTexts) {
  const testing::TempFolder folder;
  DataConfig config;
  config.source = DataSource::kJsonl, config.train = {"sft.jsonl"};
  write_sample_files(config, {.conversations = true, .minimind = true}, folder.path());
  std::istringstream lines(read_file(folder.path() / "sft.jsonl"));
  std::set<std::string> fields;
  for (std::string line; std::getline(lines, line);) {
    const json record = json::parse(line);
    for (const auto& turn : record.at("conversations"))
      for (const auto& [key, value] : turn.items()) {
        EXPECT_TRUE(value.is_string()) << key;
        fields.insert(key);
        EXPECT_TRUE(!key.starts_with("tool") || json::parse(value.get<std::string>()).is_array()) << value;
      }
  }
  EXPECT_EQ(fields, (std::set<std::string>{"content", "reasoning_content", "role", "tool_calls", "tools"}));
  config.train = {"/absolute.jsonl"};
  EXPECT_THROW(write_sample_files(config, {}, folder.path()), Error);
}

}  // namespace
}  // namespace tightloop
