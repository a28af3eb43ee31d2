// Order is a function of the seed and the data: seen from outside, one process after another.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace tightloop {
namespace {

using testing::run;
using testing::TempFolder;
using Parts = std::vector<std::string>;

struct Order {
  std::string whole;
  Parts parts;  // of 100 batches each
};

class OrderVerb : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TempFolder>();
    std::string text;
    for (int i = 0; i < 3000; ++i)
      text += fmt::format(R"({{"text":"Document {} says that {} cats sat on {} mats."}})"
                          "\n",
                          i, i * 7919 % 1000, i % 17);
    write_file_whole(*folder_ / "a.jsonl", text);
    const auto trained =
        run(folder_->path(), "tightloop tokenizer train a.jsonl --vocab-size 300 --output tok");
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
    const auto prepared =
        run(folder_->path(), "tightloop prepare " + kRaw + "--shard-tokens 20000 --output shards");
    ASSERT_EQ(prepared.exit_code, 0) << prepared.output;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  Order order(const std::string& arguments, int rows = 8) {
    const auto outcome =
        run(folder_->path(),
            fmt::format("tightloop data order {} --train.micro_batch {} --json", arguments, rows));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    const auto json = nlohmann::json::parse(outcome.output, nullptr, false);
    if (!json.is_object()) return {};
    return {json.at("order_hash"), json.at("parts").get<Parts>()};
  }

  void expect_one_order(const std::string& recipe) {
    const Order whole = order(recipe + "--data.num_workers 1 --data.tokenizer_threads 1");
    ASSERT_EQ(whole.parts.size(), 10u);
    EXPECT_NE(whole.parts[0], whole.parts[1]);
    for (const int threads : {2, 8})
      EXPECT_EQ(
          order(fmt::format("{}--data.num_workers {} --data.tokenizer_threads {}", recipe, threads, threads))
              .parts,
          whole.parts)
          << recipe << threads;
    // A stop at batch 500, and on in a process that knows nothing of the first.
    Parts joined = order(recipe + "--batches 500").parts;
    for (const auto& part : order(recipe + "--batches 500 --from 500").parts) joined.push_back(part);
    EXPECT_EQ(joined, whole.parts);
    // Two readers with half of each batch.
    const Order left = order(recipe + "--rank 0 --world 2", 4),
                right = order(recipe + "--rank 1 --world 2", 4);
    EXPECT_NE(left.parts, right.parts);
    for (size_t i = 0; i < whole.parts.size() && i < left.parts.size() && i < right.parts.size(); ++i)
      EXPECT_EQ(number(left.parts[i]) + number(right.parts[i]), number(whole.parts[i])) << recipe << i;
    // And it can tell: another seed is another order, of the same rows.
    EXPECT_NE(order(recipe + "--train.seed 5").whole, whole.whole);
  }

  static uint64_t number(const std::string& hex) { return std::stoull(hex, nullptr, 16); }

  inline static const std::string kRaw =
      "'" TIGHTLOOP_SOURCE_DIR
      "/configs/text.yaml' --data.source jsonl --data.train a.jsonl --data.seq_len 48 --train.micro_batch 16 "
      "--tokenizer.path tok ";
  inline static const std::string kShards =
      "'" TIGHTLOOP_SOURCE_DIR
      "/configs/text.yaml' --data.source shards --data.train shards --data.seq_len 48 --train.micro_batch 16 "
      "--tokenizer.path tok ";
  inline static std::unique_ptr<TempFolder> folder_;
};

TEST_F(OrderVerb, RawFilesForAnyThreadsStopsAndReaders) { expect_one_order(kRaw); }

TEST_F(OrderVerb, ShardsForAnyThreadsStopsAndReaders) { expect_one_order(kShards); }

TEST_F(OrderVerb, ShardsGiveWhatTheRawFilesGive) {
  EXPECT_EQ(order(kShards + "--batches 300").parts, order(kRaw + "--batches 300").parts);
}

TEST_F(OrderVerb, ARankThatIsNoneIsRefused) {
  const auto outcome = run(folder_->path(), "tightloop data order " + kRaw + "--rank 2 --world 2");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(testing::contains(outcome.output, "--rank 2")) << outcome.output;
}

}  // namespace
}  // namespace tightloop
