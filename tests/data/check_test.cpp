#include "data/check.h"

#include <fstream>

#include "data/byte_tokenizer.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/prepare.h"
#include "data/show.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
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
    data.source = "jsonl";
    data.train = {(folder / "a.jsonl").string()};
    data.rows = "pack";
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
  it.data.source = "shards";
  it.data.train = {(it.folder / "out").string()};
  const DataCheck shards = check_data(it.source());
  EXPECT_EQ(shards.train.tokens, check.train.tokens);
  EXPECT_EQ(shards.train.supervised, check.train.supervised);
  EXPECT_EQ(shards.train.rows, check.train.rows);
}

TEST(CheckData, TooLittleForARowIsNoError) {
  Talk it;
  it.data.rows = "stream";
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
  options.rows_kind = "pad";
  Loader padded(store, options);
  const Batch& batch = padded.next();
  EXPECT_EQ(show_row(batch, 0, ByteTokenizer(), false), "ab[c\\x01]d");
  EXPECT_EQ(show_row(batch, 1, ByteTokenizer(), false), "x[y]");
  EXPECT_EQ(show_row(batch, 1, ByteTokenizer(), true), "x\033[32my\033[0m");
  options.rows_kind = "pack";
  options.rows = 1;
  Loader packed(store, options);
  EXPECT_EQ(show_row(packed.next(), 0, ByteTokenizer(), false), "ab[c\\x01]d|x[y]");
}

}  // namespace
}  // namespace tightloop
