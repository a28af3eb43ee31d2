#include "data/generate/toy_pairs.h"

#include <gtest/gtest.h>

#include <set>

#include "data/store/random_documents.h"

namespace tightloop {
namespace {

std::vector<std::string> all(bool held_out, const TasksConfig& config) {
  const auto reader = make_toy_pair_reader(config, held_out);
  std::vector<std::string> records;
  for (RecordBatch batch; reader->read(batch, 100, 1 << 20); batch.clear())
    for (size_t i = 0; i < batch.size(); ++i) records.emplace_back(batch[i].bytes);
  return records;
}

TEST(ToyPairs, AreTheSameEveryTimeAndShareNothingWithWhatIsHeldOut) {
  TasksConfig config;
  config.questions = 3000, config.held_out = 300;
  const auto train = all(false, config), held_out = all(true, config);
  EXPECT_EQ(train.size(), 3000u);
  EXPECT_EQ(held_out.size(), 300u);
  EXPECT_EQ(train, all(false, config));
  const std::set<std::string> learned(train.begin(), train.end());
  for (const auto& record : held_out) EXPECT_FALSE(learned.contains(record)) << record;
  EXPECT_GT(learned.size(), 2500u) << "sentences hardly repeat";
  config.seed = 2;
  EXPECT_NE(train, all(false, config));
}

TEST(RandomDocuments, AreEvenAndReadAlikeFromAnywhere) {
  const RandomDocuments documents(100, 40, 7, {5, 6});
  EXPECT_EQ(documents.begin(0), 0u);
  EXPECT_EQ(documents.begin(1), 5u);
  EXPECT_EQ(documents.begin(2), 11u);
  EXPECT_EQ(documents.tokens(), 220u);
  std::vector<int32_t> whole(220), part(50);
  documents.read(0, 220, whole.data());
  for (uint64_t first : {0, 1, 3, 50, 170}) {
    documents.read(first, 50, part.data());
    for (size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], whole[first + i]);
  }
  for (const int32_t id : whole) EXPECT_TRUE(id >= 0 && id < 100);
  EXPECT_GT(std::set<int32_t>(whole.begin(), whole.end()).size(), 70u);
}

}  // namespace
}  // namespace tightloop
