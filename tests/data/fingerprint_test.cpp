#include "data/store/fingerprint.h"

#include <fmt/format.h>

#include <ctime>
#include <fstream>

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

TEST(Fingerprint, TimesAreUnixTimeAndThoseOfOlderVersionsTheSame) {
  const TempFolder folder;
  const auto data = text_of(folder / "a.txt");
  write_file_whole(folder / "a.txt", std::string(1 << 20, 'x'));
  auto was = fingerprint_files(data, /*per_file=*/8 << 10);
  EXPECT_NEAR(was["files"][0]["time"].get<double>(), static_cast<double>(std::time(nullptr)), 60);
  was["files"][0]["time"] = file_time(folder / "a.txt");
  EXPECT_TRUE(compare_files(was, data).moved.empty());
  was["files"][0]["time"] = file_time(folder / "a.txt") - 1'000'000'000;
  EXPECT_EQ(compare_files(was, data).moved.size(), 1u);
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

TEST(Fingerprint, WhatAFileIsReadForIsCompared) {
  const TempFolder folder;
  write_file_whole(folder / "a.txt", "one two three");
  write_file_whole(folder / "b.txt", "four five six");
  const std::string a = (folder / "a.txt").string(), b = (folder / "b.txt").string();
  DataConfig both, apart, pairs;
  both.train = {a, b};
  apart.train = {a}, apart.val = {b};
  auto was = fingerprint_files(both);
  EXPECT_TRUE(compare_files(was, both).changed.empty());
  const auto changed = compare_files(was, apart).changed;
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_NE(changed[0].find("b.txt': was in train, is in val"), std::string::npos) << changed[0];
  for (auto& file : was["files"]) file.erase("part");
  EXPECT_TRUE(compare_files(was, apart).changed.empty()) << "a checkpoint that does not say";

  const std::string first = "source=text train=" + a, second = "source=text train=";
  DataConfig mixture, other;
  mixture.mixture = {first + "," + b, "source=tasks"};
  EXPECT_TRUE(compare_files(fingerprint_files(mixture), mixture).changed.empty());
  mixture.mixture = {first, second + a + "," + b};
  other.mixture = {first + "," + a, second + b};
  EXPECT_EQ(compare_files(fingerprint_files(mixture), other).changed.size(), 1u);
}

TEST(Fingerprint, OfManyFilesLittleIsHashed) {
  const TempFolder folder;
  constexpr uint64_t kFiles = 3000;
  for (uint64_t i = 0; i < kFiles; ++i) std::ofstream(folder / fmt::format("{}.txt", i)) << i;
  const auto was = fingerprint_files(text_of(folder / "*.txt"));
  ASSERT_EQ(was.at("files").size(), kFiles);
  EXPECT_LE(was.at("per_file").get<uint64_t>() * kFiles, uint64_t{256} << 20);

  const auto data = text_of(folder / "large");
  const std::string whole(100'000, 'x');
  write_file_whole(folder / "large", whole);
  constexpr uint64_t kPart = 8 << 10;  // of 32768 files or more
  const auto large = fingerprint_files(data, kPart);
  const auto with = [&](size_t at) {
    auto changed = whole;
    changed[at] = 'y';
    write_file_whole(folder / "large", changed);
    return compare_files(large, data).changed.size();
  };
  EXPECT_EQ(with(0), 1u);
  EXPECT_EQ(with(4095), 1u);
  EXPECT_EQ(with(whole.size() - 4096), 1u);
  EXPECT_EQ(with(whole.size() - 1), 1u);
  EXPECT_EQ(with(whole.size() / 2), 0u) << "only the first and the last block are looked at";
}

TEST(Fingerprint, AComparedFileIsNotReadAgain) {
  const TempFolder folder;
  const auto data = text_of(folder / "a.txt");
  write_file_whole(folder / "a.txt", "one two three");
  const auto time = fs::last_write_time(folder / "a.txt");
  const auto was = fingerprint_files(data);
  EXPECT_TRUE(compare_files(was, data).changed.empty());
  write_file_whole(folder / "a.txt", "one two threE");
  fs::last_write_time(folder / "a.txt", time);
  EXPECT_EQ(fingerprint_files(data), was) << "as it was compared";
  EXPECT_NE(fingerprint_files(data), was) << "once";
}

TEST(Fingerprint, KnowsTheFilesOfEverySource) {
  const TempFolder folder;
  for (const char* name : {"a", "b", "c", "d", "train-00000.shard", "val-00000.shard"})
    write_file_whole(folder / name, name);
  const auto files = [](const DataConfig& data) { return fingerprint_files(data).at("files").size(); };
  const auto path = [&](const char* name) { return (folder / name).string(); };
  DataConfig pairs;
  pairs.source = DataSource::kPairs, pairs.train = {path("a")}, pairs.train_target = {path("b")};
  pairs.val = {path("c")}, pairs.val_target = {path("d")};
  EXPECT_EQ(files(pairs), 4u);
  DataConfig shards;
  shards.source = DataSource::kShards, shards.train = {folder.path().string()};
  EXPECT_EQ(files(shards), 2u);
  DataConfig mixture;
  mixture.mixture = {"source=jsonl train=" + path("a") + " val=" + path("b"), "source=tasks"};
  EXPECT_EQ(files(mixture), 2u);
  for (const auto source :
       {DataSource::kTasks, DataSource::kSpelling, DataSource::kToyPairs, DataSource::kRandom}) {
    DataConfig generated;
    generated.source = source;
    EXPECT_EQ(files(generated), 0u) << source;
  }
}

TEST(Fingerprint, TextThatIsNotUtf8GoesIntoJson) {
  EXPECT_EQ(json_text("caf\xC3\xA9"), "caf\xC3\xA9");
  EXPECT_FALSE(nlohmann::json(json_text("caf\xE9")).dump().empty());
}

}  // namespace
}  // namespace tightloop
