#include "data/training_text.h"

#include <fstream>

#include "support.h"

namespace tightloop {
namespace {

using testing::TempFolder;

std::vector<std::string> texts_of(const DataConfig& config, PairSide side = PairSide::kBoth) {
  TrainingText texts(config, {}, side);
  std::vector<std::string> all;
  for (std::string text; texts.next(text);) all.push_back(text);
  return all;
}

TEST(TrainingText, OfJsonItIsTheTextsAndTheTurns) {
  TempFolder folder;
  std::ofstream(folder / "a.jsonl")
      << R"({"text":"one\ntwo"})"
         "\nnot json\n{\"other\":1}\n{\"text\":\"\"}\n"
      << R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})";
  DataConfig config;
  config.source = DataSource::kJsonl;
  config.holdout = 0;
  config.train = {(folder / "a.jsonl").string()};
  EXPECT_EQ(texts_of(config), (std::vector<std::string>{"one\ntwo", "q\na\n"}));
  config.format = RecordFormat::kText;
  config.text_field = "other";
  EXPECT_TRUE(texts_of(config).empty());
}

TEST(TrainingText, HeldOutTextsAreLeftOutAndOtherSourcesRefused) {
  TempFolder folder;
  std::ofstream file(folder / "a.jsonl");
  for (int i = 0; i < 1000; ++i) file << "{\"text\":\"" << i << "\"}\n";
  file.close();
  DataConfig config;
  config.source = DataSource::kJsonl;
  config.holdout = 0.2;
  config.train = {(folder / "a.jsonl").string()};
  EXPECT_NEAR(static_cast<double>(texts_of(config).size()), 800, 60);
  for (const DataSource source : {DataSource::kShards, DataSource::kSpelling}) {
    config.source = source;
    testing::error_of(ExitCode::kUsage, [&] { texts_of(config); });
  }
}

TEST(TrainingText, AHeldOutTailIsLeftOut) {
  TempFolder folder;
  std::string text;
  for (int i = 0; i < 500; ++i) text += "\xc3\xa4";
  std::ofstream(folder / "a.txt") << text << "\n\n" << text;
  DataConfig config;
  config.train = {(folder / "a.txt").string()};
  config.holdout = 0.25, config.holdout_by = HoldoutBy::kTail;
  EXPECT_EQ(texts_of(config), (std::vector<std::string>{text, text.substr(0, 500)}));
  config.holdout = 0.2501;  // in the middle of a character
  EXPECT_EQ(texts_of(config), (std::vector<std::string>{text, text.substr(0, 498)}));
  config.holdout = 0.75;
  EXPECT_EQ(texts_of(config), (std::vector<std::string>{text.substr(0, 500)}));
  config.val = config.train;
  EXPECT_EQ(texts_of(config).size(), 2u);
}

TEST(TrainingText, OfPairsItIsEitherSideOrBoth) {
  TempFolder folder;
  std::ofstream(folder / "a.tsv") << "one\teins\textra\nno tab\ntwo\tzwei\n";
  std::ofstream(folder / "a.json") << R"([["one","eins"],["lonely"],["two","zwei"]])";
  std::ofstream(folder / "a.en") << "one\ntwo\n";
  std::ofstream(folder / "a.de") << "eins\nzwei\n";
  using Texts = std::vector<std::string>;
  for (const char* name : {"a.tsv", "a.json", "a.en"}) {
    DataConfig config;
    config.source = DataSource::kPairs;
    config.holdout = 0;
    config.train = {(folder / name).string()};
    if (std::string(name) == "a.en") config.train_target = {(folder / "a.de").string()};
    EXPECT_EQ(texts_of(config), (Texts{"one", "eins", "two", "zwei"})) << name;
    EXPECT_EQ(texts_of(config, PairSide::kSource), (Texts{"one", "two"})) << name;
    EXPECT_EQ(texts_of(config, PairSide::kTarget), (Texts{"eins", "zwei"})) << name;
  }
}

// So that "N of M documents" is said of all of them.
TEST(TrainingText, HeldOutRecordsThatAreBadAreCounted) {
  TempFolder folder;
  std::ofstream file(folder / "a.jsonl");
  for (int i = 0; i < 200; ++i) file << (i < 7 ? R"({"text":"good )" : R"({"body":"bad )") << i << "\"}\n";
  file.close();
  DataConfig config;
  config.source = DataSource::kJsonl, config.holdout = 0.3;
  config.train = {(folder / "a.jsonl").string()};
  for (const auto how : {HoldoutBy::kHash, HoldoutBy::kTail}) {
    config.holdout_by = how;
    TrainingText texts(config, {});
    std::string text;
    while (texts.next(text)) EXPECT_EQ(text.substr(0, 4), "good");
    EXPECT_EQ(texts.good(), 7u) << how;
    EXPECT_EQ(texts.bad().total(), 193u) << how;
  }
}

}  // namespace
}  // namespace tightloop
