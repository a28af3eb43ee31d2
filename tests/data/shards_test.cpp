#include "data/store/shards.h"

#include <chrono>
#include <fstream>

#include "core/allocations.h"
#include "core/hash.h"
#include "core/random.h"
#include "data/batch/loader.h"
#include "data/store/shard_writer.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::TempFolder;
using Tokens = std::vector<int32_t>;

// Random documents, into shards and into memory alike.
std::vector<fs::path> write_random(const TempFolder& folder, int64_t vocab, bool masked, TokenStore& store,
                                   int shards = 3, int documents = 300) {
  std::vector<fs::path> paths;
  Random random(vocab + masked);
  for (int s = 0; s < shards; ++s) {
    ShardWriter writer(folder / ("part-" + std::to_string(s)), vocab, 77);
    for (int d = 0; s != 1 && d < documents; ++d) {  // the second shard is empty
      Tokens ids(random.below(700));
      std::vector<uint8_t> mask(masked ? ids.size() : 0);
      for (auto& id : ids) id = static_cast<int32_t>(random.below(vocab));
      for (auto& bit : mask) bit = random.below(2);
      writer.append(ids, mask, d % 5);
      store.append(ids, mask, d % 5);
    }
    writer.finish();
    paths.push_back(folder / ("part-" + std::to_string(s)));
  }
  return paths;
}

TEST(Shards, HoldWhatWasWritten) {
  for (const int64_t vocab : {300, 65536, 100000})
    for (const bool masked : {false, true}) {
      TempFolder folder;
      TokenStore store(vocab);
      const ShardSet shards(write_random(folder, vocab, masked, store), 77);
      ASSERT_EQ(shards.size(), store.size());
      ASSERT_EQ(shards.tokens(), store.tokens());
      for (uint64_t i = 0; i < store.size(); ++i) {
        ASSERT_EQ(shards.begin(i), store.begin(i));
        ASSERT_EQ(shards.source(i), store.source(i));
      }
      Random random(1);
      for (int i = 0; i < 300; ++i) {
        const uint64_t from = random.below(store.tokens());
        const uint64_t count = random.below(std::min<uint64_t>(5000, store.tokens() - from) + 1);
        Tokens got(count), wanted(count);
        std::vector<uint8_t> got_mask(count), wanted_mask(count);
        shards.read(from, count, got.data());
        store.read(from, count, wanted.data());
        shards.read_mask(from, count, got_mask.data());
        store.read_mask(from, count, wanted_mask.data());
        ASSERT_EQ(got, wanted);
        ASSERT_EQ(got_mask, wanted_mask);
      }
    }
}

TEST(Shards, AnotherTokenizerIsRefused) {
  TempFolder folder;
  TokenStore store(300);
  const auto paths = write_random(folder, 300, false, store);
  const auto message = testing::error_of(ExitCode::kData, [&] { ShardSet(paths, 78); });
  EXPECT_NE(message.find("another tokenizer"), std::string::npos) << message;
  EXPECT_EQ(ShardSet(paths, std::nullopt).size(), store.size());
}

TEST(Shards, EveryFlippedBitIsFound) {
  TempFolder folder;
  TokenStore store(300);
  const auto path = write_random(folder, 300, true, store, 1, 40)[0];
  std::ifstream in(path, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  Random random(9);
  for (int i = 0; i < 300; ++i) {
    std::string bad = good;
    bad[random.below(bad.size())] ^= static_cast<char>(1 << random.below(8));
    std::ofstream(folder / "bad", std::ios::binary) << bad;
    const auto message = testing::error_of(ExitCode::kData, [&] {
      const ShardSet shards({folder / "bad"}, 77);
      Tokens ids(shards.tokens());
      std::vector<uint8_t> mask(shards.tokens());
      shards.read(0, ids.size(), ids.data());
      shards.read_mask(0, ids.size(), mask.data());
      for (uint64_t d = 0; d < shards.size(); ++d) shards.source(d);
    });
    EXPECT_NE(message.find("bad'"), std::string::npos) << message;
  }
}

TEST(Shards, CutShortAtAnyByteIsFound) {
  TempFolder folder;
  TokenStore store(300);
  const auto path = write_random(folder, 300, true, store, 1, 4)[0];
  for (auto size = static_cast<int64_t>(fs::file_size(path)) - 1; size >= 0; size -= 97) {
    fs::resize_file(path, size);
    testing::error_of(ExitCode::kData, [&] { Shard shard(path); });
  }
}

TEST(Shards, IdsBeyondTheVocabularyAreRefusedOnBothSides) {
  TempFolder folder;
  {
    ShardWriter writer(folder / "a", 1000, 1);
    testing::error_of(ExitCode::kData, [&] { writer.append(Tokens{1000}, {}); });
    testing::error_of(ExitCode::kData, [&] { writer.append(Tokens{-1}, {}); });
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));  // an unfinished shard leaves nothing behind
  // A shard that somebody else wrote, checksums and all.
  ShardWriter writer(folder / "a", 1000, 1);
  writer.append(Tokens{1, 2, 999}, {});
  writer.finish();
  std::fstream file(folder / "a", std::ios::in | std::ios::out | std::ios::binary);
  ShardFooter footer;
  file.seekg(-static_cast<int>(sizeof footer), std::ios::end);
  file.read(reinterpret_cast<char*>(&footer), sizeof footer);
  footer.vocab_size = 999;
  footer.hash = hash64(&footer, offsetof(ShardFooter, hash));
  file.seekp(-static_cast<int>(sizeof footer), std::ios::end);
  file.write(reinterpret_cast<const char*>(&footer), sizeof footer);
  file.close();
  const auto message = testing::error_of(ExitCode::kData, [&] {
    const ShardSet shards({folder / "a"}, 1);
    Tokens ids(3);
    shards.read(0, 3, ids.data());
  });
  EXPECT_NE(message.find("id 999"), std::string::npos) << message;
}

// A billion tokens that take no room on the disk: all zero, in sparse files.
std::vector<fs::path> sparse_billion(const TempFolder& folder) {
  std::vector<fs::path> paths;
  constexpr uint64_t kTokens = 250'000'000, kDocument = 1000, kBlock = ShardFooter::kBlock;
  for (int part = 0; part < 4; ++part) {
    ShardFooter footer;
    footer.vocab_size = 50257;
    footer.tokens = kTokens;
    footer.documents = kTokens / kDocument;
    std::vector<uint64_t> begins;
    for (uint64_t i = 0; i <= footer.documents; ++i) begins.push_back(i * kDocument);
    footer.begins_at = (kTokens * 2 + kBlock - 1) / kBlock * kBlock;
    footer.checksums_at = footer.begins_at + begins.size() * 8;
    std::string tail(footer.checksums_at - footer.begins_at, '\0');
    std::memcpy(tail.data(), begins.data(), begins.size() * 8);
    std::vector<uint64_t> checksums(footer.begins_at / kBlock, hash64(std::string(kBlock, '\0')));
    for (uint64_t at = 0; at < tail.size(); at += kBlock)
      checksums.push_back(hash64(std::string_view(tail).substr(at, kBlock)));
    footer.checksums_hash = hash64(checksums.data(), checksums.size() * 8);
    footer.hash = hash64(&footer, offsetof(ShardFooter, hash));
    paths.push_back(folder / ("sparse-" + std::to_string(part)));
    std::ofstream out(paths.back(), std::ios::binary);
    out.seekp(static_cast<std::streamoff>(footer.begins_at));
    out << tail;
    out.write(reinterpret_cast<const char*>(checksums.data()),
              static_cast<std::streamsize>(checksums.size() * 8));
    out.write(reinterpret_cast<const char*>(&footer), sizeof footer);
  }
  return paths;
}

TEST(Shards, SeekToTheMiddleOfABillionTokensIsInstant) {
  TempFolder folder;
  const auto paths = sparse_billion(folder);
  const auto start = std::chrono::steady_clock::now();
  LoaderOptions options;
  options.rows = 32;
  options.seq_len = 1024;
  options.first_batch = 1'000'000'000 / (32 * 1024) / 2;
  Loader loader(std::make_shared<ShardSet>(paths, std::nullopt), options);
  EXPECT_EQ(loader.next().index, options.first_batch);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 0.1 * (AllocationCount::available() ? 1 : 10));
  RecordProperty("milliseconds", std::to_string(took.count() * 1e3));
}

TEST(Shards, LoadingDoesNotAllocate) {
  if (!AllocationCount::available()) GTEST_SKIP() << "the sanitizer owns operator new";
  TempFolder folder;
  TokenStore store(300);
  const auto shards = std::make_shared<ShardSet>(write_random(folder, 300, true, store), 77);
  for (const auto kind : {RowKind::kStream, RowKind::kPad, RowKind::kPack}) {
    LoaderOptions options;
    options.rows = 4;
    options.seq_len = 64;
    options.rows_kind = kind;
    Loader loader(shards, options);
    for (int i = 0; i < 10; ++i) loader.next();
    const AllocationCount allocations;
    for (int i = 0; i < 500; ++i) loader.next();
    EXPECT_EQ(allocations.count(), 0u) << kind;
  }
}

}  // namespace
}  // namespace tightloop
