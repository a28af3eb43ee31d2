#include "data/dataset.h"

#include <fstream>
#include <set>

#include "data/byte_tokenizer.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using testing::TempFolder;

std::string text_of(const Documents& documents, uint64_t i) {
  std::vector<int32_t> ids(documents.length(i));
  documents.read(documents.begin(i), ids.size(), ids.data());
  return ByteTokenizer().decode(ids);
}

std::string mask_of(const Documents& documents, uint64_t i) {
  std::string mask(documents.length(i), 0);
  documents.read_mask(documents.begin(i), mask.size(), reinterpret_cast<uint8_t*>(mask.data()));
  for (char& bit : mask) bit += '0';
  return mask;
}

TEST(Dataset, TrainAndValShareNothingAndLoseNothing) {
  TempFolder folder;
  std::string text;
  std::set<std::string> wanted;
  for (int i = 0; i < 2000; ++i) {
    wanted.insert("document " + std::to_string(i) + "<|endoftext|>");
    text += "document " + std::to_string(i) + "\n\n";
  }
  testing::write_file(folder / "a.txt", text);
  DataConfig config;
  config.train = {(folder / "*.txt").string()};
  for (const int threads : {1, 2}) {
    config.tokenizer_threads = threads;
    const Dataset dataset = load_dataset(config, {}, ByteTokenizer());
    std::set<std::string> seen;
    for (const auto& part : {dataset.train, dataset.val})
      for (uint64_t i = 0; i < part->size(); ++i) EXPECT_TRUE(seen.insert(text_of(*part, i)).second);
    EXPECT_EQ(seen, wanted);
    EXPECT_NEAR(static_cast<double>(dataset.val->size()), 100, 40);
    EXPECT_EQ(text_of(*dataset.train, 0), "document 0<|endoftext|>");
  }
}

TEST(Dataset, TheTailOfTheStreamCanBeHeldOut) {
  TempFolder folder;
  testing::write_file(folder / "a.txt", "one two three\n\nfour five\n\nsix seven eight nine ten");
  DataConfig config;
  config.train = {(folder / "a.txt").string()};
  config.holdout = 0;
  const ByteTokenizer tokenizer;
  const auto all = load_dataset(config, {}, tokenizer).train;
  config.holdout = 0.5, config.holdout_by = HoldoutBy::kTail;
  const Dataset parts = load_dataset(config, {}, tokenizer);
  EXPECT_EQ(parts.val->tokens(), all->tokens() / 2);
  EXPECT_EQ(parts.train->tokens() + parts.val->tokens(), all->tokens());
  std::vector<int32_t> expected(all->tokens()), got(all->tokens());
  all->read(0, all->tokens(), expected.data());
  parts.train->read(0, parts.train->tokens(), got.data());
  parts.val->read(0, parts.val->tokens(), got.data() + parts.train->tokens());
  EXPECT_EQ(got, expected);
  // The document in the middle is in both, cut where the tail begins.
  EXPECT_EQ(parts.train->size() + parts.val->size(), all->size() + 1);
  for (const auto& part : {parts.train, parts.val}) {
    EXPECT_EQ(part->begin(0), 0u);
    for (uint64_t i = 0; i < part->size(); ++i) EXPECT_GT(part->length(i), 0u);
  }
}

TEST(Dataset, AHeldOutTailHasTwoRows) {
  TempFolder folder;
  testing::write_file(folder / "a.txt", std::string(2000, 'a'));
  DataConfig config;
  config.train = {(folder / "a.txt").string()};
  config.holdout_by = HoldoutBy::kTail, config.seq_len = 100;
  const auto held_out = [&] { return load_dataset(config, {}, ByteTokenizer()).val->tokens(); };
  EXPECT_EQ(held_out(), 201u);
  config.seq_len = 1000;  // but not most of the text
  EXPECT_EQ(held_out(), 600u);
  config.seq_len = 10;
  EXPECT_EQ(held_out(), 100u);
  config.holdout = 0;
  EXPECT_EQ(held_out(), 0u);
}

TEST(Dataset, OwnValFilesHoldNothingOut) {
  TempFolder folder;
  testing::write_file(folder / "train.txt", "one\n\ntwo\n");
  testing::write_file(folder / "val.txt", "three\n");
  DataConfig config;
  config.train = {(folder / "train.txt").string()};
  config.val = {(folder / "val.txt").string()};
  const Dataset dataset = load_dataset(config, {}, ByteTokenizer());
  EXPECT_EQ(dataset.train->size(), 2u);
  ASSERT_EQ(dataset.val->size(), 1u);
  EXPECT_EQ(text_of(*dataset.val, 0), "three<|endoftext|>");
}

TEST(Dataset, LearnsOnlyWhatFollowsTheMarker) {
  TempFolder folder;
  testing::write_file(folder / "a.txt", "ab = cd = e\nnone\n");
  DataConfig config;
  config.train = {(folder / "a.txt").string()};
  config.documents = DocumentEnd::kLine;
  config.loss_after = "=";
  config.holdout = 0;
  const Dataset dataset = load_dataset(config, {}, ByteTokenizer());
  ASSERT_EQ(dataset.train->size(), 1u);
  EXPECT_EQ(dataset.bad.count(BadKind::kNothingToLearn), 1u);
  EXPECT_EQ(text_of(*dataset.train, 0), "ab = cd = e<|endoftext|>");
  EXPECT_EQ(mask_of(*dataset.train, 0), "000011111111");
}

TEST(Dataset, TasksBecomeDocuments) {
  DataConfig config;
  config.source = DataSource::kTasks;
  config.loss_after = "=";
  TasksConfig tasks;
  tasks.questions = 1000;
  tasks.held_out = 40;
  const Dataset dataset = load_dataset(config, tasks, ByteTokenizer());
  EXPECT_EQ(dataset.train->size(), 1000u);
  EXPECT_EQ(dataset.val->size(), 40u);
  const auto questions = training_questions(tasks);
  for (uint64_t i = 0; i < 1000; i += 37) {
    EXPECT_EQ(text_of(*dataset.train, i), questions[i].line() + "<|endoftext|>");
    const std::string mask = mask_of(*dataset.train, i);
    EXPECT_EQ(mask.find('1'), questions[i].prompt.size());
    EXPECT_EQ(std::count(mask.begin(), mask.end(), '1'), static_cast<int>(questions[i].answer.size()) + 2);
  }
}

TEST(Dataset, MissingFilesAreNamed) {
  DataConfig config;
  config.train = {"/nowhere/at-all.txt"};
  EXPECT_NE(testing::error_of(ExitCode::kData, [&] { load_dataset(config, {}, ByteTokenizer()); })
                .find("at-all.txt"),
            std::string::npos);
  config.train = {};
  testing::error_of(ExitCode::kUsage, [&] { load_dataset(config, {}, ByteTokenizer()); });
}

TEST(Dataset, ConversationsWithoutATemplateSayWhatIsMissing) {
  TempFolder folder;
  testing::write_file(folder / "a.jsonl", R"({"question":"q","answer":"a"})");
  DataConfig config;
  config.source = DataSource::kJsonl;
  config.train = {(folder / "a.jsonl").string()};
  const auto message =
      testing::error_of(ExitCode::kUsage, [&] { load_dataset(config, {}, ByteTokenizer()); });
  EXPECT_NE(message.find("<|im_start|>"), std::string::npos) << message;
}

TEST(Dataset, NothingToLearnIsSaid) {
  TempFolder folder;
  testing::write_file(folder / "a.txt", "\n\n");
  DataConfig config;
  config.train = {(folder / "a.txt").string()};
  testing::error_of(ExitCode::kData, [&] { load_dataset(config, {}, ByteTokenizer()); });
}

}  // namespace
}  // namespace tightloop
