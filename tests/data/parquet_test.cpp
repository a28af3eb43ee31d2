#include "data/read/parquet.h"

#include <cstdlib>
#include <fstream>

#include "core/plugin.h"
#include "data/byte_tokenizer.h"
#include "data/dataset.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using testing::TempFolder;

/// The files are written by pyarrow, which set-up brings; without it, or without the plug-in, there is
/// nothing to test.
class Parquet : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT(testing::python());
    SKIP_WITHOUT(program_folder() / kParquetPlugin);
    static const TempFolder made;
    static const int status = testing::run_python("tests/data/make_parquet.py", made.path());
    ASSERT_EQ(status, 0);
    folder_ = made.path();
  }

  Dataset load(std::vector<std::string> names, RecordFormat format = RecordFormat::kAuto) {
    DataConfig config;
    config.source = DataSource::kParquet;
    config.format = format;
    config.holdout = 0, config.on_bad_record = OnBadRecord::kSkip;
    for (const auto& name : names) config.train.push_back((folder_ / name).string());
    return load_dataset(config, {}, ByteTokenizer({"<|im_start|>", "<|im_end|>"}));
  }

  static std::string text_of(const Dataset& dataset, uint64_t i) {
    std::vector<int32_t> ids(dataset.train->length(i));
    dataset.train->read(dataset.train->begin(i), ids.size(), ids.data());
    return ByteTokenizer({"<|im_start|>", "<|im_end|>"}).decode(ids);
  }

  fs::path folder_;
};

TEST_F(Parquet, TextsOfAllKinds) {
  for (const char* name : {"text.parquet", "large.parquet"}) {
    const Dataset dataset = load({name});
    ASSERT_EQ(dataset.train->size(), 5000u) << name;
    for (const uint64_t i : {0, 999, 1000, 4999})
      EXPECT_EQ(text_of(dataset, i), "text " + std::to_string(i) + " \"quoted\" \\ é漢\n<|endoftext|>");
    EXPECT_EQ(dataset.bad.total(), 0u);
  }
  const Dataset dataset = load({"dictionary.parquet"}, RecordFormat::kText);
  EXPECT_EQ(dataset.train->size(), 40u);
  EXPECT_EQ(dataset.bad.count(BadKind::kWrongType), 10u);  // null
  EXPECT_EQ(dataset.bad.count(BadKind::kEmpty), 10u);
}

TEST_F(Parquet, NestedConversationsAndChoices) {
  Dataset dataset = load({"chat.parquet"});
  EXPECT_EQ(dataset.train->size(), 98u);
  EXPECT_EQ(text_of(dataset, 3), "<|im_start|>user\nq3<|im_end|>\n<|im_start|>assistant\na3<|im_end|>\n");
  EXPECT_EQ(dataset.bad.count(BadKind::kNoAssistant), 1u);
  EXPECT_EQ(dataset.bad.count(BadKind::kWrongType), 1u);
  EXPECT_NE(dataset.bad.first_ones()[0].find("chat.parquet:8 "), std::string::npos) << dataset.bad.report();
  dataset = load({"choice.parquet"});
  EXPECT_EQ(dataset.train->size(), 2u);
  EXPECT_NE(text_of(dataset, 1).find("- y=B"), std::string::npos);
}

TEST_F(Parquet, BrokenFilesDoNotStopTheOthers) {
  std::ifstream in(folder_ / "text.parquet", std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  std::ofstream(folder_ / "cut.parquet", std::ios::binary) << good.substr(0, good.size() / 2);
  std::ofstream(folder_ / "foreign.parquet") << "this is not a Parquet file at all";
  std::ofstream(folder_ / "magic.parquet") << "PAR1 and nothing sensible behind it PAR1";
  std::ofstream(folder_ / "zero.parquet");
  Dataset dataset = load({"cut.parquet", "foreign.parquet", "magic.parquet", "zero.parquet",
                          "columns.parquet", "empty.parquet", "chat.parquet"});
  EXPECT_EQ(dataset.train->size(), 98u);
  EXPECT_EQ(dataset.bad.count(BadKind::kBrokenFile), 5u) << dataset.bad.report();
  // Damage in one row group leaves the others.
  std::string damaged = good;
  for (size_t i = 0; i < 40; ++i) damaged[damaged.size() / 3 + i] ^= 0x3c;
  std::ofstream(folder_ / "damaged.parquet", std::ios::binary) << damaged;
  dataset = load({"damaged.parquet"}, RecordFormat::kText);
  EXPECT_GE(dataset.train->size(), 3000u) << dataset.bad.report();
  testing::error_of(ExitCode::kData, [&] { load({"nowhere.parquet"}); });
}

TEST_F(Parquet, OrderDoesNotDependOnThreads) {
  DataConfig config;
  config.source = DataSource::kParquet;
  config.train = {(folder_ / "text.parquet").string(), (folder_ / "large.parquet").string()};
  config.tokenizer_threads = 1;
  const Dataset one = load_dataset(config, {}, ByteTokenizer());
  config.tokenizer_threads = 4;
  config.tokenizer_batch_size = 7;
  const Dataset four = load_dataset(config, {}, ByteTokenizer());
  ASSERT_EQ(one.train->tokens(), four.train->tokens());
  std::vector<int32_t> a(one.train->tokens()), b(a.size());
  one.train->read(0, a.size(), a.data());
  four.train->read(0, b.size(), b.data());
  EXPECT_EQ(a, b);
}

TEST_F(Parquet, InstructionsAndPromptsAreConversations) {
  for (const auto format : {RecordFormat::kAuto, RecordFormat::kChat}) {
    const Dataset alpaca = load({"alpaca.parquet"}, format);
    ASSERT_EQ(alpaca.train->size(), 2u) << alpaca.bad.report();
    EXPECT_EQ(text_of(alpaca, 0),
              "<|im_start|>user\nAdd.\n1 2<|im_end|>\n<|im_start|>assistant\n3<|im_end|>\n");
    EXPECT_EQ(load({"prompt.parquet"}, format).train->size(), 1u);
  }
}

}  // namespace
}  // namespace tightloop
