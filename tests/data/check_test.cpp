#include "data/check.h"

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "data/batch/loader.h"
#include "data/batch/pairs.h"
#include "data/batch/show.h"
#include "data/byte_tokenizer.h"
#include "data/dataset.h"
#include "data/store/prepare.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using testing::error_of;
using testing::TempFolder;

struct Talk {
  TempFolder folder;
  ByteTokenizer tokenizer{{"<|im_start|>", "<|im_end|>"}};
  DataConfig data;
  TasksConfig tasks;
  ChatConfig chat;
  Talk() {
    std::ofstream file(folder / "a.jsonl");
    for (int i = 0; i < 200; ++i)
      file << R"({"question":"hi )" << i << R"(","answer":"yo"})"
           << "\n";
    file << "oops\n";
    data.source = DataSource::kJsonl;
    data.train = {(folder / "a.jsonl").string()};
    data.rows = RowKind::kPack;
    data.seq_len = 128;
  }
  SourceOptions source() const { return {data, tasks, chat, tokenizer}; }
};

TEST(CheckData, CountsWhatTrainingWouldSee) {
  Talk it;
  const DataCheck check = check_data(it.source());
  const Dataset dataset = load_dataset(it.data, it.tasks, it.tokenizer, it.chat);
  EXPECT_EQ(check.records, 201u);
  EXPECT_EQ(check.bad.total(), 1u);
  EXPECT_EQ(check.train.documents, dataset.train->size());
  EXPECT_EQ(check.train.tokens, dataset.train->tokens());
  EXPECT_EQ(check.val.tokens, dataset.val->tokens());
  EXPECT_EQ(check.train.supervised, 3 * dataset.train->size());  // "yo" and its end
  Loader loader(dataset.train, loader_options(it.data));
  EXPECT_EQ(check.train.rows, loader.plan().rows());
  EXPECT_DOUBLE_EQ(check.train.padding_share, loader.plan().padding_share());
  // The same from shards.
  prepare(it.source(), {it.folder / "out", 1000, {}});
  it.data.source = DataSource::kShards;
  it.data.train = {(it.folder / "out").string()};
  const DataCheck shards = check_data(it.source());
  EXPECT_EQ(shards.train.tokens, check.train.tokens);
  EXPECT_EQ(shards.train.supervised, check.train.supervised);
  EXPECT_EQ(shards.train.rows, check.train.rows);
}

TEST(CheckData, CountsTheTailThatTrainingHoldsOut) {
  Talk it;
  it.data.holdout_by = HoldoutBy::kTail, it.data.holdout = 0.3;
  const DataCheck check = check_data(it.source());
  const Dataset dataset = load_dataset(it.data, it.tasks, it.tokenizer, it.chat);
  for (const auto& [documents, part] : {std::pair{dataset.train, check.train}, {dataset.val, check.val}}) {
    EXPECT_EQ(part.documents, documents->size());
    EXPECT_EQ(part.tokens, documents->tokens());
    std::vector<uint8_t> mask(documents->tokens());
    EXPECT_EQ(part.supervised, documents->read_mask(0, mask.size(), mask.data()));
    EXPECT_EQ(part.rows, Loader(documents, loader_options(it.data)).plan().rows());
  }
}

TEST(CheckData, EverySourceIsCheckedLoadedAndPreparedOrExplained) {
  Talk it;
  it.tasks.questions = 300, it.tasks.held_out = 20;
  std::ofstream(it.folder / "a.txt") << "one text\n\nanother text\n\nand a third one\n";
  std::ofstream(it.folder / "a.tsv") << "one\tone\ntwo\ttwo\nthree\tthree\n";
  prepare(it.source(), {it.folder / "shards", 1000, {}});
  const std::map<DataSource, std::string> files{{DataSource::kText, "a.txt"},
                                                {DataSource::kJsonl, "a.jsonl"},
                                                {DataSource::kPairs, "a.tsv"},
                                                {DataSource::kShards, "shards"},
                                                {DataSource::kParquet, "a.txt"}};
  // What `auto` is was to be found out before; of parquet, this file is none.
  const std::set<DataSource> explained{DataSource::kAuto, DataSource::kRandom, DataSource::kParquet};
  EXPECT_EQ(kChoices<DataSource>.size(), 10u);
  for (const auto& [source, name, help] : kChoices<DataSource>) {
    SCOPED_TRACE(name);
    it.data = {};
    it.data.source = source, it.data.holdout = 0;
    it.data.rows = RowKind::kPack, it.data.seq_len = 32;
    if (files.contains(source)) it.data.train = {(it.folder / files.at(source)).string()};
    if (source == DataSource::kAuto) it.data.train = {(it.folder / "a.txt").string()};
    const auto load = [&] { return load_dataset(it.data, it.tasks, it.tokenizer, it.chat); };
    if (explained.contains(source)) {
      EXPECT_FALSE(
          error_of(source == DataSource::kParquet ? ExitCode::kData : ExitCode::kUsage, load).empty());
      continue;
    }
    const DataCheck check = check_data(it.source());
    const Dataset dataset = load();
    EXPECT_EQ(check.train.documents, dataset.train->size() / (it.data.holds_pairs() ? 2 : 1));
    EXPECT_EQ(check.train.tokens, dataset.train->tokens());
    if (it.data.holds_pairs()) {
      PairOptions options;
      options.batch_tokens = it.data.batch_tokens, options.max_length = it.data.seq_len;
      const PairPlan plan(*dataset.train, options);
      EXPECT_EQ(check.train.rows, plan.batches());
      EXPECT_EQ(check.train.long_documents, plan.long_pairs());
      EXPECT_DOUBLE_EQ(check.train.padding_share, plan.padding_share());
    } else {
      EXPECT_EQ(check.train.rows, Loader(dataset.train, loader_options(it.data)).plan().rows());
    }
    EXPECT_GT(check.train.rows, 0u);
    if (source == DataSource::kShards) continue;
    const auto report = prepare(it.source(), {it.folder / ("of_" + std::string(name)), 1000, {}});
    EXPECT_EQ(report.totals.train_tokens, check.train.tokens);
  }
  it.data = {};
  it.data.source = DataSource::kRandom;
  EXPECT_NE(error_of(ExitCode::kUsage, [&] { check_data(it.source()); }).find("random"), std::string::npos);
  EXPECT_NE(error_of(ExitCode::kUsage,
                     [&] {
                       prepare(it.source(), {it.folder / "x", 10, {}});
                     })
                .find("random"),
            std::string::npos);
}

TEST(CheckData, AMixtureOfPairsIsPlannedAsPairs) {
  Talk it;
  it.tasks.questions = 300, it.tasks.held_out = 20;
  it.data = {};
  it.data.mixture = {"name=a source=toy_pairs", "name=b source=toy_pairs"};
  const DataCheck check = check_data(it.source());
  const Dataset dataset = load_dataset(it.data, it.tasks, it.tokenizer, it.chat);
  PairOptions options;
  options.batch_tokens = it.data.batch_tokens, options.max_length = it.data.seq_len;
  EXPECT_EQ(check.train.rows, PairPlan(*dataset.train, options).batches());
  it.data.mixture = {"name=a source=toy_pairs", "name=b source=tasks"};
  EXPECT_NE(error_of(ExitCode::kUsage, [&] { check_data(it.source()); }).find("mixed"), std::string::npos);
}

// What `prepare` makes of pairs needs both tokenizers again, and refuses another one on either side.
TEST(Prepare, ShardsOfPairsKnowBothTokenizers) {
  Talk it;
  const ByteTokenizer target({"<x>", "<y>", "<z>"});
  std::ofstream(it.folder / "a.tsv") << "one\t<x> two\nthree\t<y> four\n";
  it.data = {};
  it.data.source = DataSource::kPairs, it.data.holdout = 0, it.data.train = {(it.folder / "a.tsv").string()};
  SourceOptions options{it.data, it.tasks, it.chat, it.tokenizer, &target};
  prepare(options, {it.folder / "out", 1000, {}});
  EXPECT_TRUE(fs::is_directory(it.folder / "out" / "tokenizer_target"));
  it.data.source = DataSource::kShards, it.data.train = {(it.folder / "out").string()};
  EXPECT_EQ(load_dataset(it.data, it.tasks, it.tokenizer, it.chat, &target).train->size(), 4u);
  for (const Tokenizer* other :
       {static_cast<const Tokenizer*>(nullptr), static_cast<const Tokenizer*>(&it.tokenizer)})
    error_of(ExitCode::kData, [&] { load_dataset(it.data, it.tasks, it.tokenizer, it.chat, other); });
}

TEST(ShowPair, ShowsBothSides) {
  auto store = std::make_shared<TokenStore>(300);
  for (const std::string text : {"ab", "cde"}) {
    std::vector<int32_t> ids{256};
    for (const char c : text) ids.push_back(c);
    ids.push_back(256);
    store->append(ids, {});
  }
  PairLoader loader(store, {});
  const auto text = show_pair(loader.next(), 0, ByteTokenizer(), ByteTokenizer(), false);
  EXPECT_EQ(text, "<|endoftext|>ab<|endoftext|>\n[cde<|endoftext|>]");
}

TEST(CheckData, TooLittleForARowIsNoError) {
  Talk it;
  it.data.rows = RowKind::kStream;
  it.data.seq_len = 1 << 20;
  EXPECT_EQ(check_data(it.source()).train.rows, 0u);
}

TEST(ShowRow, TellsLearnedFromRead) {
  auto store = std::make_shared<TokenStore>(300);
  store->append(std::vector<int32_t>{'a', 'b', 'c', 1, 'd'}, std::vector<uint8_t>{0, 0, 1, 1, 0});
  store->append(std::vector<int32_t>{'x', 'y'}, std::vector<uint8_t>{0, 1});
  LoaderOptions options;
  options.rows = 2;
  options.seq_len = 9;
  options.shuffle = false;
  options.rows_kind = RowKind::kPad;
  Loader padded(store, options);
  const Batch& batch = padded.next();
  EXPECT_EQ(show_row(batch, 0, ByteTokenizer(), false), "ab[c\\x01]d");
  EXPECT_EQ(show_row(batch, 1, ByteTokenizer(), false), "x[y]");
  EXPECT_EQ(show_row(batch, 1, ByteTokenizer(), true), "x\033[32my\033[0m");
  options.rows_kind = RowKind::kPack;
  options.rows = 1;
  Loader packed(store, options);
  EXPECT_EQ(show_row(packed.next(), 0, ByteTokenizer(), false), "ab[c\\x01]d|x[y]");
}

}  // namespace
}  // namespace tightloop
