#include "data/store/prepare.h"
#include "data/store/prepare_key.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/hash.h"
#include "data/batch/loader.h"
#include "data/byte_tokenizer.h"
#include "data/dataset.h"
#include "data/store/shards.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::ByteTokenizer;
using testing::TempFolder;

struct Case {
  TempFolder folder;
  ByteTokenizer tokenizer{{"<|im_start|>", "<|im_end|>"}};
  DataConfig data;
  TasksConfig tasks;
  ChatConfig chat;

  explicit Case(int records = 3000) {
    std::ofstream file(folder / "talk.jsonl");
    for (int i = 0; i < records; ++i) {
      file << R"({"question":"what is )" << i << R"(?","answer":")" << i * i % 997 << "\"}\n";
      if (i % 100 == 7) file << "not json\n";
    }
    data.source = DataSource::kJsonl;
    data.train = {(folder / "talk.jsonl").string()};
    data.seq_len = 64;
    data.rows = RowKind::kPad;
  }
  SourceOptions source() const { return {data, tasks, chat, tokenizer}; }
};

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// All shards of a folder, name and contents.
std::string contents(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".shard") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::string all;
  for (const auto& path : paths) all += path.filename().string() + read_all(path);
  return all;
}

// Folders and caches that were prepared before a setting came are good while it has its default. A setting
// that is new goes to the list in prepare_key(); this number stays.
TEST(Prepare, TheKeyOfStandardSettingsStaysWhatItWas) {
  Case it(1);
  it.data = {}, it.data.source = DataSource::kTasks;
  const uint64_t standard = prepare_key(it.source());
  EXPECT_EQ(hex64(standard), "78bb1f761829389f");
  it.data.ignore_fields = {"tools"};
  EXPECT_NE(prepare_key(it.source()), standard);
  it.data.ignore_fields = {}, it.chat.answer_tokens = AnswerTokens::kParse;
  EXPECT_NE(prepare_key(it.source()), standard);
}

TEST(Prepare, ShardsHoldWhatRawFilesGive) {
  Case it;
  const auto report = prepare(it.source(), {it.folder / "out", 20000, {}});
  EXPECT_TRUE(report.finished);
  EXPECT_EQ(report.bad.count(BadKind::kMalformedJson), 30u);
  EXPECT_GT(report.totals.shards, 3u);
  EXPECT_EQ(report.totals.train_documents + report.totals.val_documents, 3000u);
  EXPECT_EQ(report.totals.records, 3030u);
  DataConfig shards = it.data;
  shards.source = DataSource::kShards;
  shards.train = {(it.folder / "out").string()};
  const Dataset raw = load_dataset(it.data, it.tasks, it.tokenizer, it.chat);
  const Dataset prepared = load_dataset(shards, it.tasks, it.tokenizer, it.chat);
  for (const auto& [a, b] : {std::pair{raw.train, prepared.train}, {raw.val, prepared.val}}) {
    ASSERT_EQ(a->size(), b->size());
    ASSERT_EQ(a->tokens(), b->tokens());
    LoaderOptions options = loader_options(it.data);
    options.seed = 3;
    Loader left(a, options), right(b, options);
    for (int i = 0; i < 200; ++i) {
      const Batch &x = left.next(), &y = right.next();
      const auto cells = static_cast<size_t>(x.rows * x.length);
      ASSERT_EQ(std::memcmp(x.inputs, y.inputs, cells * 4), 0);
      ASSERT_EQ(std::memcmp(x.targets, y.targets, cells * 4), 0);
      ASSERT_EQ(std::memcmp(x.loss_mask, y.loss_mask, cells), 0);
    }
  }
}

TEST(Prepare, TheSameBytesForAnyThreadsAndStops) {
  Case it;
  prepare(it.source(), {it.folder / "one", 20000, {}});
  const std::string wanted = contents(it.folder / "one");
  for (const int threads : {1, 3}) {
    it.data.tokenizer_threads = threads;
    it.data.tokenizer_batch_size = threads == 1 ? 1 : 50;
    const auto out = it.folder / ("threads-" + std::to_string(threads));
    prepare(it.source(), {out, 20000, {}});
    EXPECT_TRUE(contents(out) == wanted) << threads;
  }
  // Stopped again and again, each time a little later.
  const auto out = it.folder / "stopped";
  bool finished = false;
  for (uint64_t stop = 100; !finished; stop += 450) {
    ASSERT_LT(stop, 100000u);
    finished = prepare(it.source(), {out, 20000, [&](const PrepareProgress& p) { return p.records < stop; }})
                   .finished;
  }
  EXPECT_TRUE(contents(out) == wanted);
  EXPECT_TRUE(prepare(it.source(), {out, 20000, {}}).finished);  // once more changes nothing
  EXPECT_TRUE(contents(out) == wanted);
}

TEST(Prepare, AnotherTaskInTheSameFolderIsRefused) {
  Case it(50);
  prepare(it.source(), {it.folder / "out", 20000, {}});
  it.chat.system_prompt = "other";
  testing::error_of(ExitCode::kData, [&] { prepare(it.source(), {it.folder / "out", 20000, {}}); });
  std::ofstream(it.folder / "out" / "prepare.json") << "{";
  it.chat.system_prompt = "";
  testing::error_of(ExitCode::kData, [&] { prepare(it.source(), {it.folder / "out", 20000, {}}); });
}

TEST(Prepare, AFolderThatIsNotFinishedIsNotTrainedOn) {
  Case it;
  const auto out = it.folder / "out";
  prepare(it.source(), {out, 20000, [](const PrepareProgress& p) { return p.shards < 2; }});
  ASSERT_TRUE(fs::exists(out / "train-00001.shard"));
  DataConfig shards = it.data;
  shards.source = DataSource::kShards;
  for (const fs::path& named : {out, out / "train-00000.shard"}) {
    shards.train = {named.string()};
    const std::string message =
        testing::error_of(ExitCode::kData, [&] { load_dataset(shards, it.tasks, it.tokenizer, it.chat); });
    EXPECT_NE(message.find("Run the same prepare again"), std::string::npos) << message;
  }
  prepare(it.source(), {out, 20000, {}});
  load_dataset(shards, it.tasks, it.tokenizer, it.chat);
  // Nothing is finished where the first shard is not: other settings may begin there.
  const auto begun = it.folder / "begun";
  prepare(it.source(), {begun, 20000, [](const PrepareProgress&) { return false; }});
  it.chat.system_prompt = "other";
  EXPECT_TRUE(prepare(it.source(), {begun, 20000, {}}).finished);
  fs::remove(out / "prepare.json");  // as of somebody else's shards
  load_dataset(shards, it.tasks, it.tokenizer, it.chat);
}

TEST(Prepare, TheTailThatTrainingHoldsOut) {
  Case it(1000);
  it.data.holdout_by = HoldoutBy::kTail;
  for (const double holdout : {0.05, 0.6}) {
    it.data.holdout = holdout;
    const Dataset raw = load_dataset(it.data, it.tasks, it.tokenizer, it.chat);
    const auto out = it.folder / fmt::format("out-{}", holdout);
    auto report = prepare(it.source(), {out, 10000, {}});
    EXPECT_GT(report.totals.shards, 3u);
    const std::string wanted = contents(out);
    // Stopped while the tail was moved: the shards are cut already, and the state does not say so.
    auto state = nlohmann::json::parse(read_all(out / "prepare.json"));
    state["stage"] = 1, state["train_tokens"] = report.totals.train_tokens + report.totals.val_tokens;
    std::ofstream(out / "prepare.json") << state.dump();
    report = prepare(it.source(), {out, 10000, {}});
    EXPECT_TRUE(contents(out) == wanted);
    EXPECT_EQ(report.totals.train_documents, raw.train->size());
    EXPECT_EQ(report.totals.val_documents, raw.val->size());
    DataConfig shards = it.data;
    shards.source = DataSource::kShards;
    shards.train = {out.string()};
    const Dataset prepared = load_dataset(shards, it.tasks, it.tokenizer, it.chat);
    for (const auto& [a, b] : {std::pair{raw.train, prepared.train}, {raw.val, prepared.val}}) {
      ASSERT_EQ(a->tokens(), b->tokens());
      std::vector<int32_t> left(a->tokens()), right(left.size());
      std::vector<uint8_t> left_mask(left.size()), right_mask(left.size());
      a->read(0, left.size(), left.data()), b->read(0, right.size(), right.data());
      a->read_mask(0, left.size(), left_mask.data()), b->read_mask(0, right.size(), right_mask.data());
      EXPECT_EQ(left, right);
      EXPECT_EQ(left_mask, right_mask);
    }
  }
}

TEST(Prepare, ValFilesAndTasks) {
  Case it(50);
  it.data.val = it.data.train;
  auto report = prepare(it.source(), {it.folder / "val", 1 << 20, {}});
  EXPECT_EQ(report.totals.train_documents, 50u);
  EXPECT_EQ(report.totals.val_documents, 50u);
  it.data.source = DataSource::kTasks;
  it.tasks.questions = 500, it.tasks.held_out = 20;
  report = prepare(it.source(), {it.folder / "tasks", 2000, {}});
  EXPECT_EQ(report.totals.train_documents, 500u);
  EXPECT_EQ(report.totals.val_documents, 20u);
}

TEST(Prepare, AMixtureBecomesAFolderForEachSource) {
  Case it(300);
  std::ofstream(it.folder / "b.txt") << "one two\n\nthree\n\nfour\n";
  const std::string talk = it.data.train[0], text = (it.folder / "b.txt").string();
  it.data.holdout = 0.2;
  it.data.mixture = {"name=talk weight=1 cap=100 train=" + talk,
                     "name=text source=text weight=2 train=" + text};
  const Dataset raw = load_dataset(it.data, it.tasks, it.tokenizer, it.chat);
  const auto report = prepare(it.source(), {it.folder / "out", 2000, {}});
  EXPECT_TRUE(report.finished);
  EXPECT_EQ(report.bad.count(BadKind::kMalformedJson), 3u);
  ASSERT_EQ(report.mixture.size(), 2u);
  EXPECT_NE(read_all(it.folder / "out" / "mixture.yaml").find("- " + report.mixture[1]), std::string::npos);
  DataConfig shards;
  shards.mixture = report.mixture;
  const Dataset prepared = load_dataset(shards, it.tasks, it.tokenizer, it.chat);
  EXPECT_EQ(prepared.sources, raw.sources);
  for (const auto& [a, b] : {std::pair{raw.train, prepared.train}, {raw.val, prepared.val}}) {
    ASSERT_EQ(a->size(), b->size());
    ASSERT_EQ(a->tokens(), b->tokens());
    std::vector<int32_t> left(a->tokens()), right(left.size());
    a->read(0, left.size(), left.data()), b->read(0, right.size(), right.data());
    EXPECT_EQ(left, right);
  }
  it.data.mixture = {"name=a train=" + talk, "name=a train=" + talk};
  testing::error_of(ExitCode::kUsage, [&] { prepare(it.source(), {it.folder / "again", 2000, {}}); });
}

}  // namespace
}  // namespace tightloop
