#include "train/report/event_file.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "core/files.h"
#include "support.h"
#include "train/report/chart_values.h"

namespace tightloop::testing {
namespace {

std::string hex_of(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return text;
}

// What TensorBoard's own classes write of the same (Event.SerializeToString, RecordWriter).
constexpr const char* kVersionRecord =
    "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110";
constexpr const char* kSessionRecord = "0f000000000000006d532b090900002040fc54d94110153a0208019ae9161c";
constexpr const char* kStartRecord = "0d000000000000003c37b8340900002040fc54d9413a020801a870fdd5";
constexpr const char* kScalarRecord =
    "2400000000000000422b804d0900002040fc54d94110ac022a160a140a0d747261696e696e672f6c6f73731500002040"
    "38734724";
constexpr const char* kText =
    "0a1073616d706c65732f616e737765722f31420c0807120412020801420268694a080a060a0474657874";
constexpr const char* kHistogram =
    "0a01682a5109000000000000f03f1100000000000008401900000000000010402100000000000020402900000000000032403210"
    "000000000000004000000000000008403a10000000000000f03f0000000000000840";

TEST(EventFile, IsByteForByteWhatTensorBoardWrites) {
  const TempFolder folder;
  EventFile file(folder / "a", 1700000000.5, 21);
  file.add(1700000000.5, 300, {scalar_summary("training/loss", 2.5)});
  file.flush();
  EXPECT_EQ(hex_of(read_file(file.path())), std::string(kVersionRecord) + kSessionRecord + kScalarRecord);
  EventFile fresh(folder / "b", 1700000000.5, 0);
  fresh.flush();
  EXPECT_EQ(hex_of(read_file(fresh.path())), std::string(kVersionRecord) + kStartRecord);
}

TEST(EventFile, TextsAndHistogramsAreWhatTensorBoardWrites) {
  EXPECT_EQ(hex_of(text_summary("samples/answer/1", "hi")), kText);
  EXPECT_EQ(hex_of(histogram_summary("h", {2, 1, 3, 2}, 2)), kHistogram);
}

TEST(EventFile, ALaterOneSortsBehindAnEarlierOne) {
  const TempFolder folder;
  const EventFile first(folder.path(), 1700000000.9, 0), second(folder.path(), 1700000000.9, 5),
      third(folder.path(), 1600000000, 5);  // a clock that was set back
  EXPECT_LT(first.path().filename().string(), second.path().filename().string());
  EXPECT_LT(second.path().filename().string(), third.path().filename().string());
  EXPECT_TRUE(first.path().filename().string().starts_with("events.out.tfevents.1700000000."));
}

TEST(EventFile, WhatCannotBeWrittenIsASentence) {
  const TempFolder folder;
  write_file(folder / "taken", "a file");
  error_of(ExitCode::kUsage, [&] { EventFile(folder / "taken", 1, 0); });
  EventFile file(folder / "a", 1, 0);
  file.flush();
  fs::remove_all(folder / "a");
  file.add(1, 1, {scalar_summary("x", 1)});
  const auto message = error_of(ExitCode::kCheckpoint, [&] { file.flush(); });
  EXPECT_NE(message.find("removed"), std::string::npos) << message;
}

TEST(ChartValues, AreTheNumbersAndListsOfALine) {
  const auto values = chart_values({{"global_step", 10},
                                    {"time", 1.5},
                                    {"training/loss", 2.5},
                                    {"syncs", 7},
                                    {"training/grad_norm", "Infinity"},
                                    {"eval/loss", "NaN"},
                                    {"note", "text"},
                                    {"by_layer", {1, 2, "NaN", 4}},
                                    {"loads", {{0.5, 0.5}, {1.0, 0.0}}},
                                    {"outside", {{"head", 3}}},
                                    {"empty", nlohmann::json::array()},
                                    {"nothing", nullptr}});
  std::map<std::string, double> numbers(values.numbers.begin(), values.numbers.end());
  EXPECT_EQ(numbers.size(), 5u);
  EXPECT_EQ(numbers.at("training/loss"), 2.5);
  EXPECT_EQ(numbers.at("syncs"), 7);
  EXPECT_EQ(numbers.at("training/grad_norm"), INFINITY);
  EXPECT_TRUE(std::isnan(numbers.at("eval/loss")));
  EXPECT_EQ(numbers.at("outside/head"), 3);
  using Lists = std::map<std::string, std::vector<double>>;
  EXPECT_EQ(Lists(values.lists.begin(), values.lists.end()),
            (Lists{{"by_layer", {1, 2, 4}}, {"loads/0", {0.5, 0.5}}, {"loads/1", {1, 0}}}));
}

TEST(Histograms, CountEveryNumberOnce) {
  constexpr double kMax = std::numeric_limits<double>::max(), kTiny = 5e-324;
  const std::vector<std::vector<double>> cases{
      {1},        {2, 2, 2},          {0, 1},       {-3, 5, 5, 1.25},  {-kMax, kMax},
      {0, kTiny}, {1e300, -1e300, 0}, {kMax, kMax}, {0.1, 0.1 + 1e-17}};
  for (const auto& values : cases) {
    const auto histogram = histogram_of(values, 30);
    ASSERT_EQ(histogram.edges.size(), histogram.counts.size() + 1);
    double sum = 0;
    for (const double count : histogram.counts) sum += count;
    EXPECT_EQ(sum, static_cast<double>(values.size()));
    EXPECT_EQ(histogram.edges.front(), std::ranges::min(values));
    EXPECT_GE(histogram.edges.back(), std::ranges::max(values));
    EXPECT_TRUE(std::ranges::is_sorted(histogram.edges));
  }
}

}  // namespace
}  // namespace tightloop::testing
