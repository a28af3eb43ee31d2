#include "data/fingerprint.h"

#include "core/files.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::TempFolder;

DataConfig text_of(const fs::path& path) {
  DataConfig data;
  data.train = {path.string()};
  return data;
}

TEST(Fingerprint, SaysWhatBecameOfAFile) {
  const TempFolder folder;
  const auto data = text_of(folder / "a.txt");
  write_file_whole(folder / "a.txt", "one two three");
  const auto was = fingerprint_files(data);
  EXPECT_EQ(was.at("files").size(), 1u);
  EXPECT_TRUE(compare_files(was, data).changed.empty());

  write_file_whole(folder / "a.txt", "one two three");  // another time, the same bytes
  EXPECT_TRUE(compare_files(was, data).changed.empty());
  EXPECT_TRUE(compare_files(was, data).moved.empty());

  fs::rename(folder / "a.txt", folder / "b.txt");
  const auto moved = compare_files(was, text_of(folder / "b.txt"));
  EXPECT_TRUE(moved.changed.empty());
  ASSERT_EQ(moved.moved.size(), 1u);
  EXPECT_NE(moved.moved[0].find("a.txt"), std::string::npos) << moved.moved[0];

  for (const char* bytes : {"one two threE", "one two three four", ""}) {
    write_file_whole(folder / "a.txt", bytes);
    const auto changed = compare_files(was, data).changed;
    ASSERT_EQ(changed.size(), 1u) << bytes;
    EXPECT_NE(changed[0].find("was 13 bytes"), std::string::npos) << changed[0];
  }
  auto more = data;
  more.val = {(folder / "b.txt").string()};
  EXPECT_EQ(compare_files(was, more).changed.size(), 2u);
}

TEST(Fingerprint, LooksAtTheFirstAndTheLastByteOfLargeFiles) {
  const TempFolder folder;
  const auto data = text_of(folder / "a.txt");
  const std::string whole(3 << 20, 'x');
  write_file_whole(folder / "a.txt", whole);
  constexpr uint64_t kPart = 1 << 20;
  const auto was = fingerprint_files(data, kPart);
  EXPECT_NE(was.at("files")[0].at("xxh3"), fingerprint_files(data).at("files")[0].at("xxh3"))
      << "a part, or all of it";
  EXPECT_TRUE(compare_files(was, data).changed.empty());
  for (const size_t at : {size_t{0}, whole.size() - 1}) {
    auto changed = whole;
    changed[at] = 'y';
    write_file_whole(folder / "a.txt", changed);
    EXPECT_EQ(compare_files(was, data).changed.size(), 1u) << at;
  }
  write_file_whole(folder / "a.txt", whole);
  EXPECT_TRUE(compare_files(was, data).changed.empty());
  EXPECT_EQ(compare_files(was, data).moved.size(), 1u) << "its time is all that can be said about the rest";
}

TEST(Fingerprint, KnowsTheFilesOfEverySource) {
  const TempFolder folder;
  for (const char* name : {"a", "b", "c", "d", "train-00000.shard", "val-00000.shard"})
    write_file_whole(folder / name, name);
  const auto files = [](const DataConfig& data) { return fingerprint_files(data).at("files").size(); };
  const auto path = [&](const char* name) { return (folder / name).string(); };
  DataConfig pairs;
  pairs.source = "pairs", pairs.train = {path("a")}, pairs.train_target = {path("b")};
  pairs.val = {path("c")}, pairs.val_target = {path("d")};
  EXPECT_EQ(files(pairs), 4u);
  DataConfig shards;
  shards.source = "shards", shards.train = {folder.path().string()};
  EXPECT_EQ(files(shards), 2u);
  DataConfig mixture;
  mixture.mixture = {"source=jsonl train=" + path("a") + " val=" + path("b"), "source=tasks"};
  EXPECT_EQ(files(mixture), 2u);
  for (const char* source : {"tasks", "spelling", "toy_pairs", "random"}) {
    DataConfig generated;
    generated.source = source;
    EXPECT_EQ(files(generated), 0u) << source;
  }
}

TEST(Fingerprint, NamesThatAreNotUtf8GoIntoJson) {
  const TempFolder folder;
  const fs::path path = folder / "caf\xE9.txt";
  write_file_whole(path, "text");
  const auto was = fingerprint_files(text_of(path));
  EXPECT_FALSE(was.dump().empty());
  EXPECT_TRUE(compare_files(was, text_of(path)).changed.empty());
}

}  // namespace
}  // namespace tightloop
