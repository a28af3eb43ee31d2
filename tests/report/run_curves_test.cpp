#include "train/watch/run_curves.h"

#include <algorithm>
#include <cmath>

#include "support.h"

namespace tightloop::testing {
namespace {

using nlohmann::json;

TEST(RunCurves, KeepsFewPointsAsTheyAre) {
  const std::vector<double> values{3, 1, 2};
  EXPECT_EQ(kept_points(values, 3), (std::vector<size_t>{0, 1, 2}));
  EXPECT_TRUE(kept_points({}, 3).empty());
}

TEST(RunCurves, ThinsManyPointsAndKeepsSpikes) {
  std::vector<double> values;
  for (int i = 0; i < 100'000; ++i) values.push_back(std::sin(i * 0.001));
  values[54'321] = 30, values[77'777] = -30;
  const auto kept = kept_points(values, 2000);
  EXPECT_LE(kept.size(), 2002u);
  EXPECT_GE(kept.size(), 1000u);
  EXPECT_TRUE(std::ranges::is_sorted(kept));
  EXPECT_EQ(kept.front(), 0u);
  EXPECT_EQ(kept.back(), 99'999u);
  for (const size_t spike : {54'321, 77'777})
    EXPECT_TRUE(std::ranges::binary_search(kept, spike)) << spike << " is the point that matters";
}

TEST(RunCurves, HasACurveForEachNumber) {
  RunCurves curves;
  curves.add({{"global_step", 10}, {"time", 5.0}, {"training/loss", 2.5}, {"training/lr", 1e-3}});
  curves.add({{"global_step", 20}, {"training/loss", 1.5}, {"eval/loss", 1.75}});
  const json all = curves.curves(100);
  EXPECT_EQ(all.size(), 3u) << all;
  EXPECT_EQ(all["training/loss"]["steps"], (json{10, 20}));
  EXPECT_EQ(all["training/loss"]["values"], (json{2.5, 1.5}));
  EXPECT_EQ(all["training/loss"]["points"], 2);
  EXPECT_EQ(all["eval/loss"]["steps"], (json{20}));
  EXPECT_EQ(curves.last_step(), 20);
}

TEST(RunCurves, KeepsNumbersThatAreNotFiniteApart) {
  RunCurves curves;
  curves.add({{"global_step", 1}, {"training/grad_norm", "NaN"}});
  curves.add({{"global_step", 2}, {"training/grad_norm", 0.5}, {"training/loss", "Infinity"}});
  const json all = curves.curves(100);
  EXPECT_EQ(all["training/grad_norm"]["values"], (json{0.5}));
  EXPECT_EQ(all["training/grad_norm"]["not_finite"], json::parse(R"([[1, "NaN"]])"));
  EXPECT_EQ(all["training/loss"]["not_finite"], json::parse(R"([[2, "Infinity"]])"));
  EXPECT_TRUE(all["training/loss"]["values"].empty());
}

TEST(RunCurves, TakesListsApart) {
  RunCurves curves;
  curves.add(json::parse(R"({"global_step": 1, "norms": [1, 2, "NaN"], "loads": [[0.1, 0.9], [0.5, 0.5]],
                             "by": {"head": 3, "blocks": [4, 5]}, "text": "no number", "none": null})"));
  const json all = curves.curves(100);
  EXPECT_EQ(all["norms/1"]["values"], (json{2}));
  EXPECT_EQ(all["norms/2"]["not_finite"], json::parse(R"([[1, "NaN"]])"));
  EXPECT_EQ(all["loads/0"]["values"], (json{0.9})) << "the largest of a layer's experts";
  EXPECT_EQ(all["by/head"]["values"], (json{3}));
  EXPECT_EQ(all["by/blocks/1"]["values"], (json{5}));
  EXPECT_EQ(all.size(), 3u + 2 + 3) << all;
}

TEST(RunCurves, StepsThatComeAgainReplaceThoseBefore) {
  RunCurves curves;
  for (const int step : {10, 20, 30, 15, 25})
    curves.add({{"global_step", step}, {"training/loss", step == 15 ? 7.0 : 1.0}});
  const json loss = curves.curves(100)["training/loss"];
  EXPECT_EQ(loss["steps"], (json{10, 15, 25}));
  EXPECT_EQ(loss["values"], (json{1.0, 7.0, 1.0}));
  EXPECT_EQ(curves.replaced(), 2u);
}

TEST(RunCurves, LinesWithoutAStepAreLeftOut) {
  RunCurves curves;
  curves.add({{"training/loss", 1.0}});
  curves.add({{"global_step", "ten"}, {"training/loss", 1.0}});
  EXPECT_TRUE(curves.empty());
}

TEST(RunCurves, AnEndlessNumberOfMetricsIsBounded) {
  RunCurves curves;
  for (int i = 0; i < 1000; ++i) curves.add({{"global_step", i}, {"metric" + std::to_string(i), 1}});
  EXPECT_EQ(curves.curves(10).size(), 400u);
  EXPECT_EQ(curves.left_out(), 600u);
}

TEST(RunCurves, TheMetricsOfEveryRunAreThereWhateverElseIs) {
  RunCurves curves;
  json line{{"global_step", 1}, {"norms", std::vector<double>(200, 1.0)}};
  for (int i = 0; i < 500; ++i) line["training/loss/source" + std::to_string(i)] = 1;
  curves.add(line);
  curves.add({{"global_step", 2}, {"eval/loss", 0.5}, {"training/loss/late", 1}});
  const json all = curves.curves(10);
  EXPECT_EQ(all.size(), 401u);
  EXPECT_TRUE(all.contains("eval/loss")) << "though it came last";
  EXPECT_EQ(curves.left_out(), 500 + 200 + 1 - 400u) << "entries of a long list count, too";
  curves.add(line);
  EXPECT_EQ(curves.left_out(), 301u) << "each once";
}

TEST(RunCurves, MeansOfAThinnedCurveAreThoseOfAllPoints) {
  RunCurves curves;
  double sum = 0;
  constexpr int kPoints = 10'000;
  for (int i = 1; i <= kPoints; ++i) {
    const double seconds = i % 10 == 0 ? 5.5 : 0.5;  // one step in ten is slow
    curves.add({{"global_step", i}, {"perf/step_time", seconds}});
    sum += seconds;
  }
  const json curve = curves.curves(200)["perf/step_time"];
  ASSERT_EQ(curve["means"].size(), curve["values"].size());
  double total = 0, points = 0, plain = 0;
  for (size_t i = 0; i < curve["means"].size(); ++i) {
    const double count = curve["counts"][i];
    total += curve["means"][i].get<double>() * count, points += count;
    plain += curve["values"][i].get<double>() / static_cast<double>(curve["values"].size());
  }
  EXPECT_EQ(points, kPoints);
  EXPECT_NEAR(total / points, sum / kPoints, 1e-5);
  EXPECT_GT(plain, 2 * sum / kPoints) << "the mean of what is drawn would be another";
  EXPECT_FALSE(curves.curves(kPoints)["perf/step_time"].contains("means"));
}

TEST(RunCurves, TheClockLeavesPausesOut) {
  RunCurves curves;
  curves.add({{"global_step", 10}, {"time", 1010.0}});
  curves.add({{"global_step", 20}, {"time", 1020.0}});
  curves.add({{"global_step", 30}, {"time", 9005.0}});
  const json clock = curves.clock({1000, 9000}, 100);
  EXPECT_EQ(clock["steps"], (json{10, 20, 30}));
  EXPECT_EQ(clock["seconds"], (json{10, 20, 25}));
  EXPECT_TRUE(clock["tokens"].is_null()) << "no line says how many there were";
}

TEST(RunCurves, TheClockOfARunWithoutTimesAddsUpItsSteps) {
  RunCurves curves;
  curves.add({{"global_step", 10}});
  curves.add({{"global_step", 20}, {"perf/step_time", 0.5}, {"perf/tokens_per_second", 100}});
  curves.add({{"global_step", 30}});
  const json clock = curves.clock({}, 100);
  EXPECT_EQ(clock["seconds"], (json{5, 10, 15}));
  EXPECT_EQ(clock["tokens"], (json{500, 1000, 1500}));
}

}  // namespace
}  // namespace tightloop::testing
