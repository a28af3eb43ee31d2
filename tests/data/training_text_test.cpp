#include "data/training_text.h"

#include <fstream>

#include "support.h"

namespace tightloop {
namespace {

using testing::TempFolder;

std::vector<std::string> texts_of(const DataConfig& config) {
  TrainingText texts(config, {});
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
  config.source = "jsonl";
  config.holdout = 0;
  config.train = {(folder / "a.jsonl").string()};
  EXPECT_EQ(texts_of(config), (std::vector<std::string>{"one\ntwo", "q\na\n"}));
  config.format = "text";
  config.text_field = "other";
  EXPECT_TRUE(texts_of(config).empty());
}

TEST(TrainingText, HeldOutTextsAreLeftOutAndOtherSourcesRefused) {
  TempFolder folder;
  std::ofstream file(folder / "a.jsonl");
  for (int i = 0; i < 1000; ++i) file << "{\"text\":\"" << i << "\"}\n";
  file.close();
  DataConfig config;
  config.source = "jsonl";
  config.holdout = 0.2;
  config.train = {(folder / "a.jsonl").string()};
  EXPECT_NEAR(static_cast<double>(texts_of(config).size()), 800, 60);
  config.source = "shards";
  testing::error_of(ExitCode::kUsage, [&] { texts_of(config); });
}

}  // namespace
}  // namespace tightloop
