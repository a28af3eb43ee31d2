#include "data/batch/pairs.h"

#include <fstream>
#include <set>

#include "core/allocations.h"
#include "core/random.h"
#include "data/byte_tokenizer.h"
#include "data/dataset.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using testing::TempFolder;
namespace fs = std::filesystem;
using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs pairs_of(const Dataset& dataset) {
  Pairs pairs;
  const ByteTokenizer tokenizer;
  const auto text = [&](uint64_t i) {
    std::vector<int32_t> ids(dataset.train->length(i));
    dataset.train->read(dataset.train->begin(i), ids.size(), ids.data());
    EXPECT_EQ(ids.front(), 256);
    EXPECT_EQ(ids.back(), 256);
    return tokenizer.decode(std::span(ids).subspan(1, ids.size() - 2));
  };
  for (uint64_t i = 0; i + 1 < dataset.train->size(); i += 2) pairs.emplace_back(text(i), text(i + 1));
  return pairs;
}

DataConfig config_of(const fs::path& train) {
  DataConfig config;
  config.source = DataSource::kPairs;
  config.train = {train.string()};
  config.holdout = 0;
  config.on_bad_record = OnBadRecord::kSkip;
  return config;
}

const Pairs kThree{{"one", "eins"}, {"two", "zwei"}, {"three", "drei"}};

TEST(PairSources, AllForms) {
  TempFolder folder;
  testing::write_file(folder / "a.tsv", "one\teins\ntwo\tzwei\tCC-BY\r\nthree\tdrei\n");
  EXPECT_EQ(pairs_of(load_dataset(config_of(folder / "a.tsv"), {}, ByteTokenizer())), kThree);
  testing::write_file(folder / "a.json",
                      " [[\"one\", \"eins\"],\n[\"two\",\"zwei\"] , [\"three\",\"drei\"]]\n");
  EXPECT_EQ(pairs_of(load_dataset(config_of(folder / "a.json"), {}, ByteTokenizer())), kThree);
  testing::write_file(folder / "a.jsonl", "[\"one\", \"eins\"]\n[\"two\",\"zwei\"]\n[\"three\",\"drei\"]\n");
  EXPECT_EQ(pairs_of(load_dataset(config_of(folder / "a.jsonl"), {}, ByteTokenizer())), kThree);
  testing::write_file(folder / "b.json",
                      R"([{"en":"one","de":"eins"},{"en":"two","de":"zwei"},{"de":"drei","en":"three"}])");
  DataConfig config = config_of(folder / "b.json");
  config.source_field = "en", config.target_field = "de";
  EXPECT_EQ(pairs_of(load_dataset(config, {}, ByteTokenizer())), kThree);
  testing::write_file(folder / "a.en", "one\ntwo\nthree\n");
  testing::write_file(folder / "a.de", "eins\r\nzwei\r\ndrei");
  config = config_of(folder / "a.en");
  config.train_target = {(folder / "a.de").string()};
  EXPECT_EQ(pairs_of(load_dataset(config, {}, ByteTokenizer())), kThree);
}

TEST(PairSources, BadOnesDoNotShiftTheOthers) {
  TempFolder folder;
  testing::write_file(folder / "a.en", "one\n\n\xff\ntwo\nthree\nmore\n");
  testing::write_file(folder / "a.de", "eins\nleer\nkaputt\nzwei\ndrei\n");
  DataConfig config = config_of(folder / "a.en");
  config.train_target = {(folder / "a.de").string()};
  Dataset dataset = load_dataset(config, {}, ByteTokenizer());
  EXPECT_EQ(pairs_of(dataset), kThree);
  EXPECT_EQ(dataset.bad.count(BadKind::kEmpty), 1u);
  EXPECT_EQ(dataset.bad.count(BadKind::kInvalidUtf8), 1u);
  EXPECT_EQ(dataset.bad.count(BadKind::kUnpaired), 1u);
  EXPECT_NE(dataset.bad.report().find("a.en:6 (byte 17)"), std::string::npos) << dataset.bad.report();
  testing::write_file(folder / "a.tsv", "one\teins\nno tab\n\ttab first\ntwo\tzwei\nthree\tdrei\n");
  dataset = load_dataset(config_of(folder / "a.tsv"), {}, ByteTokenizer());
  EXPECT_EQ(pairs_of(dataset), kThree);
  EXPECT_EQ(dataset.bad.total(), 2u);
  testing::write_file(folder / "a.json",
                      R"([["one","eins"],["x"],[1,2],"str",{"a":1},["two","zwei"],nul,["three","drei"])");
  dataset = load_dataset(config_of(folder / "a.json"), {}, ByteTokenizer());
  EXPECT_EQ(pairs_of(dataset), kThree);
  EXPECT_EQ(dataset.bad.total(), 6u) << dataset.bad.report();  // the list does not end, too
  config.train_target = {(folder / "a.de").string(), (folder / "a.de").string()};
  testing::error_of(ExitCode::kData, [&] { load_dataset(config, {}, ByteTokenizer()); });
}

TEST(PairSources, FilesOfDifferentLengthsAreRefused) {
  TempFolder folder;
  testing::write_file(folder / "a.en", "one\ntwo\nthree\nfour\nfive\n");
  testing::write_file(folder / "a.de", "eins\nzwei\ndrei\n");
  DataConfig config = config_of(folder / "a.en");
  config.train_target = {(folder / "a.de").string()}, config.on_bad_record = OnBadRecord::kAuto;
  auto message = testing::error_of(ExitCode::kData, [&] { load_dataset(config, {}, ByteTokenizer()); });
  EXPECT_NE(message.find("a.en' has 5 lines and '"), std::string::npos) << message;
  EXPECT_NE(message.find("a.de' has 3: "), std::string::npos) << message;
  config = config_of(folder / "a.de");
  config.train_target = {(folder / "a.en").string()}, config.on_bad_record = OnBadRecord::kAuto;
  message = testing::error_of(ExitCode::kData, [&] { load_dataset(config, {}, ByteTokenizer()); });
  EXPECT_NE(message.find("a.de' has 3 lines and '"), std::string::npos) << message;
  config.on_bad_record = OnBadRecord::kSkip;
  config.cache = (folder / "cache").string();
  EXPECT_EQ(pairs_of(load_dataset(config, {}, ByteTokenizer())).size(), 3u);
  config.on_bad_record = OnBadRecord::kAuto;
  testing::error_of(ExitCode::kData, [&] { load_dataset(config, {}, ByteTokenizer()); });
  config.cache.clear();
  testing::write_file(folder / "a.en", "one\ntwo\nthree\n\n");
  config.on_bad_record = OnBadRecord::kAuto;
  EXPECT_EQ(pairs_of(load_dataset(config, {}, ByteTokenizer())).size(), 3u) << "an empty line shifts nothing";
  config.val = {(folder / "a.de").string()};
  message = testing::error_of(ExitCode::kData, [&] { load_dataset(config, {}, ByteTokenizer()); });
  EXPECT_NE(message.find("--data.val_target FILE"), std::string::npos) << message;
}

// Pair i: a source of some length filled with i + 300, a target with i + 100300.
std::shared_ptr<TokenStore> random_pairs(int count, uint64_t longest = 60) {
  auto store = std::make_shared<TokenStore>(1 << 20);
  Random random(2);
  for (int32_t i = 0; i < count; ++i) {
    store->append(std::vector<int32_t>(2 + random.below(longest), i + 300), {});
    store->append(std::vector<int32_t>(2 + random.below(longest), i + 100300), {});
  }
  return store;
}

PairOptions options_of(int threads = 2) {
  PairOptions options;
  options.batch_tokens = 1000;
  options.threads = threads;
  options.seed = 5;
  options.bucket = 8;
  return options;
}

TEST(PairLoader, EveryPairOncePerPassUnderTheBudget) {
  const auto store = random_pairs(2000);
  PairLoader loader(store, options_of());
  double padding = 0, cells = 0;
  for (int pass = 0; pass < 2; ++pass) {
    std::set<int32_t> seen;
    for (int64_t k = 0; k < loader.batches(); ++k) {
      const PairBatch& batch = loader.next();
      EXPECT_LE(batch.rows * std::max(batch.source_length, batch.target_length), 1000);
      EXPECT_EQ(batch.source_length % 8, 0);
      EXPECT_EQ(batch.target_length % 8, 0);
      int64_t supervised = 0;
      for (int64_t r = 0; r < batch.rows; ++r) {
        const int32_t* source = batch.source + r * batch.source_length;
        const int32_t* inputs = batch.inputs + r * batch.target_length;
        const int32_t* targets = batch.targets + r * batch.target_length;
        const uint64_t pair = source[0] - 300;
        EXPECT_TRUE(seen.insert(source[0]).second);
        EXPECT_EQ(batch.source_lengths[r], static_cast<int64_t>(store->length(2 * pair)));
        EXPECT_EQ(batch.target_lengths[r], static_cast<int64_t>(store->length(2 * pair + 1)) - 1);
        for (int64_t t = 0; t < batch.source_length; ++t)
          ASSERT_EQ(source[t], t < batch.source_lengths[r] ? source[0] : 0);
        for (int64_t t = 0; t < batch.target_length; ++t) {
          ASSERT_EQ(inputs[t], t < batch.target_lengths[r] ? source[0] + 100000 : 0);
          ASSERT_EQ(targets[t], inputs[t]);
        }
        supervised += batch.target_lengths[r];
      }
      EXPECT_EQ(batch.supervised, supervised);
      padding += static_cast<double>(batch.padding);
      cells += static_cast<double>(batch.rows * (batch.source_length + batch.target_length));
    }
    EXPECT_EQ(seen.size(), 2000u);
  }
  EXPECT_NEAR(loader.plan().padding_share(), padding / cells, 1e-9);
  EXPECT_LT(loader.plan().padding_share(), 0.35);  // both sides are random here; sentences correlate
}

// Short sentences whose translations are about as long: what rounding to eight would fill with padding.
TEST(PairPlan, ChoosesABucketThatKeepsPaddingLow) {
  const auto sentences = [](int shortest, int spread) {
    auto store = std::make_shared<TokenStore>(1 << 22);
    Random random(3);
    for (int32_t i = 0; i < 4000; ++i) {
      const auto length = shortest + static_cast<int>(random.below(spread));
      store->append(std::vector<int32_t>(length, 1), {});
      store->append(std::vector<int32_t>(length - 1 + random.below(4), 1), {});
    }
    return store;
  };
  auto options = options_of();
  options.batch_tokens = 2000;
  const auto few = sentences(4, 12), many = sentences(60, 120);
  EXPECT_GT(PairPlan(*few, options).padding_share(), 0.15) << "rounded to 8";
  options.bucket = 0;
  const PairPlan chosen(*few, options), large(*many, options);
  EXPECT_LT(chosen.padding_share(), 0.1);
  EXPECT_LT(chosen.bucket(), 8);
  EXPECT_EQ(large.bucket(), 8);
  EXPECT_LT(large.padding_share(), 0.1);
}

std::vector<int32_t> firsts(PairLoader& loader, int count) {
  std::vector<int32_t> all;
  for (int i = 0; i < count; ++i) {
    const PairBatch& batch = loader.next();
    for (int64_t r = 0; r < batch.rows; ++r) all.push_back(batch.source[r * batch.source_length]);
  }
  return all;
}

TEST(PairLoader, OrderIsAFunction) {
  const auto store = random_pairs(500);
  PairLoader reference(store, options_of(0));
  const auto wanted = firsts(reference, 200);
  for (const int threads : {1, 2, 8}) {
    PairLoader loader(store, options_of(threads));
    EXPECT_EQ(firsts(loader, 200), wanted);
  }
  PairLoader start(store, options_of());
  auto head = firsts(start, 77);
  auto later = options_of();
  later.first_batch = 77;
  PairLoader rest(store, later);
  const auto tail = firsts(rest, 123);
  head.insert(head.end(), tail.begin(), tail.end());
  EXPECT_EQ(head, wanted);
  auto half = options_of();
  half.world = 2;
  PairLoader left(store, half);
  half.rank = 1;
  PairLoader right(store, half);
  std::vector<int32_t> joined;
  for (int i = 0; i < 100; ++i)
    for (PairLoader* loader : {&left, &right}) {
      const auto one = firsts(*loader, 1);
      joined.insert(joined.end(), one.begin(), one.end());
    }
  EXPECT_EQ(joined, wanted);
}

TEST(PairLoader, AChangedWorldGoesOnFromTheBatch) {
  const auto store = random_pairs(500);
  PairLoader reference(store, options_of(0));
  const auto head = firsts(reference, 33), wanted = firsts(reference, 90);
  auto third = options_of();
  third.world = 3, third.first_batch = 5, third.first_global = 33;
  std::vector<std::unique_ptr<PairLoader>> loaders;
  for (third.rank = 0; third.rank < 3; ++third.rank)
    loaders.push_back(std::make_unique<PairLoader>(store, third));
  std::vector<int32_t> joined;
  for (int i = 0; i < 30; ++i)
    for (const auto& loader : loaders) {
      const auto one = firsts(*loader, 1);
      joined.insert(joined.end(), one.begin(), one.end());
    }
  EXPECT_EQ(joined, wanted);
  EXPECT_EQ(loaders[0]->batches_before(5 + 30), 33u + 90u);
}

TEST(PairLoader, LongPairsAreCountedAndAPassEnds) {
  auto options = options_of();
  options.max_length = 30;
  options.shuffle = false;
  PairLoader loader(random_pairs(300), options);
  EXPECT_GT(loader.plan().long_pairs(), 50u);
  uint64_t rows = 0;
  while (const PairBatch* batch = loader.try_next()) rows += batch->rows;
  EXPECT_EQ(rows + loader.plan().long_pairs(), 300u);
  options.max_length = 1;
  testing::error_of(ExitCode::kData, [&] { PairLoader(random_pairs(3), options); });
}

TEST(PairLoader, DoesNotAllocate) {
  if (!AllocationCount::available()) GTEST_SKIP() << "the sanitizer owns operator new";
  PairLoader loader(random_pairs(500), options_of());
  for (int i = 0; i < 10; ++i) loader.next();
  const AllocationCount allocations;
  for (int i = 0; i < 300; ++i) loader.next();
  EXPECT_EQ(allocations.count(), 0u);
}

}  // namespace
}  // namespace tightloop
