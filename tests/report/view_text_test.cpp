#include "train/watch/view_text.h"

#include <algorithm>
#include <cmath>

#include "core/terminal/live_block.h"
#include "support.h"

namespace tightloop {
namespace {

using Lines = std::vector<std::string>;
constexpr double kNow = 1'700'000'000;

RunView view_of_a_run() {
  RunView view;
  view.name = "mine", view.state = RunState::kRunning;
  view.add_event({{"time", kNow - 80}, {"global_step", 0}, {"event", "started"}, {"steps", 1100}});
  for (int i = 1; i <= 58; ++i)
    view.add_metrics({{"global_step", 10 * i}, {"training/loss", 5.0 / i}, {"training/lr", 1e-3}});
  view.add_metrics({{"global_step", 450}, {"eval/loss", 0.1811}});
  view.add_metrics({{"global_step", 500}, {"eval/loss", 0.1822}});
  view.add_event({{"time", kNow - 42}, {"global_step", 500}, {"event", "saved"}});
  view.add_metrics({{"global_step", 583},
                    {"training/loss", 0.16174},
                    {"training/epoch", 1.251},
                    {"perf/step_time", 0.14},
                    {"perf/tokens_per_second", 23400.0},
                    {"perf/mfu", 0.412},
                    {"perf/data_wait", 0.003},
                    {"memory/allocated_gib", 12.34},
                    {"memory/peak_gib", 14.1},
                    {"memory/host_gib", 3.1}});
  view.warnings = 2;
  return view;
}

std::string joined(const Lines& lines) {
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  return text;
}

TEST(ViewText, EightyColumnsHaveAllOfIt) {
  EXPECT_EQ(view_lines(view_of_a_run(), 80, kNow, false),
            (Lines{"mine  53 %  ██████████████░░░░░░░░░░░░░  step 583/1100  1m20s so far, 1m12s left",
                   "loss 0.1617  █▃▂▁▁▁▁▁▁▁▁▁▁▁▁▁▁  held-out 0.1822  best 0.1811 at 450  lr 1.00e-03",
                   "23.4k tok/s  MFU 41.2 %  data wait 0.3 %  memory 12.3 GiB  peak 14.1 GiB",
                   "host 3.1 GiB  epoch 1.25", "checkpoint 500, 42s ago  2 warnings"}))
      << joined(view_lines(view_of_a_run(), 80, kNow, false));
}

TEST(ViewText, FitsEveryWidthAndLosesNothing) {
  const RunView view = view_of_a_run();
  for (const int width : {40, 60, 80, 120, 200}) {
    const auto lines = view_lines(view, width, kNow, false);
    const std::string text = joined(lines);
    for (const auto& line : lines) EXPECT_LE(shown_width(line), width) << line;
    for (const char* part : {"mine", "53 %", "step 583/1100", "1m20s so far, 1m12s left", "loss 0.1617", "▁",
                             "held-out 0.1822", "best 0.1811 at 450", "23.4k tok/s", "MFU 41.2 %",
                             "data wait 0.3 %", "memory 12.3 GiB", "checkpoint 500, 42s ago", "2 warnings"})
      EXPECT_NE(text.find(part), std::string::npos) << width << ": " << part << "\n" << text;
  }
  EXPECT_EQ(view_lines(view, 200, kNow, false).size(), 4u);
  EXPECT_LE(view_lines(view, 40, kNow, false).size(), 10u);
  for (const int width : {0, 1, 7})  // no sense, and no harm
    for (const auto& line : view_lines(view, width, kNow, false))
      EXPECT_LE(shown_width(line), std::max(1, width));
}

TEST(ViewText, ColoursTakeNoRoom) {
  const auto plain = view_lines(view_of_a_run(), 80, kNow, false);
  const auto styled = view_lines(view_of_a_run(), 80, kNow, true);
  ASSERT_EQ(plain.size(), styled.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(shown_width(plain[i]), shown_width(styled[i]));
  EXPECT_NE(joined(styled).find("\033[33m2 warnings\033[0m"), std::string::npos);
}

TEST(ViewText, NamesMayBeLongAndWide) {
  RunView view = view_of_a_run();
  view.name = "日本語の長い名前です日本語の長い名前です";
  for (const int width : {40, 80, 200})
    for (const auto& line : view_lines(view, width, kNow, false)) EXPECT_LE(shown_width(line), width) << line;
  EXPECT_TRUE(view_lines(view, 40, kNow, false).front().starts_with("日本語の長  "));
}

TEST(ViewText, LossesThatAreNotFiniteAreSpelled) {
  RunView view = view_of_a_run();
  view.add_metrics({{"global_step", 590}, {"training/loss", "NaN"}, {"training/skipped_steps", 1}});
  view.add_metrics({{"global_step", 590}, {"eval/loss", "Infinity"}});
  const std::string text = joined(view_lines(view, 80, kNow, false));
  EXPECT_NE(text.find("loss NaN"), std::string::npos) << text;
  EXPECT_NE(text.find("held-out Infinity"), std::string::npos) << text;
  EXPECT_NE(text.find("best 0.1811 at 450"), std::string::npos) << text;
  EXPECT_NE(text.find("1 update skipped"), std::string::npos) << text;
}

TEST(ViewText, WhatIsNotKnownIsLeftOut) {
  RunView view;
  view.state = RunState::kRunning;
  EXPECT_EQ(view_lines(view, 80, kNow, false), (Lines{"step 0", "no checkpoint yet"}));
  view.add_metrics({{"global_step", 10}, {"training/loss", 2.5}});
  EXPECT_EQ(view_lines(view, 80, kNow, false), (Lines{"step 10", "loss 2.5000", "no checkpoint yet"}))
      << "no evaluation, no speed, one loss that makes no curve";
}

TEST(ViewText, ARunThatIsSilentOrEndedSaysSo) {
  RunView view = view_of_a_run();
  view.news = kNow - 190;
  EXPECT_TRUE(view_lines(view, 80, kNow, false).back().ends_with("nothing new for 3m10s"));
  view.state = RunState::kCrashed;
  const auto lines = view_lines(view, 80, kNow, false);
  EXPECT_TRUE(lines.front().starts_with("mine  crashed  53 %")) << lines.front();
  EXPECT_EQ(joined(lines).find(" left"), std::string::npos);
  EXPECT_TRUE(lines[lines.size() - 2].ends_with("last written 3m10s ago")) << joined(lines);
  EXPECT_EQ(lines.back(), "no last word: killed or out of memory");
  EXPECT_EQ(joined(lines).find("tok/s"), std::string::npos) << "that is of another time\n" << joined(lines);
  view.add_event({{"global_step", 590}, {"event", "failed"}, {"text", "no memory\nfor it"}});
  EXPECT_EQ(view_lines(view, 80, kNow, false).back(), "no memory");
  EXPECT_EQ(view_lines(view, 8, kNow, false).back(), "no memo…");
  EXPECT_EQ(view_lines(view, 8, kNow, false, /*whole_reason=*/true).back(), "no memory");
  EXPECT_EQ(view.json(kNow)["failure"], "no memory\nfor it");
}

TEST(RunView, AResumedRunGoesOnFromItsCheckpoint) {
  RunView view = view_of_a_run();
  view.add_event({{"time", kNow - 5}, {"global_step", 500}, {"event", "resumed"}, {"steps", 2000}});
  EXPECT_EQ(view.step, 500);
  EXPECT_EQ(view.total_steps, 2000);
  EXPECT_EQ(view.saved_step, 500);
  EXPECT_EQ(view.saved, kNow - 42) << "it is the checkpoint that was saved then";
  EXPECT_NE(joined(view_lines(view, 80, kNow, false)).find("5s so far"), std::string::npos);
  view.add_event({{"time", kNow - 4}, {"global_step", 300}, {"event", "resumed"}});
  EXPECT_EQ(view.saved_step, 300);
  EXPECT_EQ(view.saved, 0) << "when that was is not known";
}

TEST(RunView, TheTimeLeftFollowsTheClock) {
  RunView view;
  view.add_event({{"time", kNow}, {"event", "started"}, {"global_step", 0}, {"steps", 1000}});
  EXPECT_FALSE(view.seconds_left());
  for (int i = 1; i <= 6; ++i)
    view.add_metrics({{"global_step", 10 * i}, {"time", kNow + 20 * i}, {"perf/step_time", 1.0}});
  EXPECT_EQ(view.seconds_left(), 2.0 * 940) << "saving and evaluating take time, too";
}

TEST(RunView, ARunningAverageIsNoLine) {
  RunView view = view_of_a_run();
  const size_t lines = view.losses.size();
  IntervalReport report{.step = 590, .total_steps = 1100, .running = true};
  report.set("training/loss", 0.2);
  view.add_report(report);
  EXPECT_EQ(view.losses.size(), lines);
  EXPECT_EQ(view.step, 590);
  EXPECT_NE(joined(view_lines(view, 80, kNow, false)).find("loss ~0.2000"), std::string::npos);
  report.running = false, report.step = 586;  // losses come later than steps
  view.add_report(report);
  EXPECT_EQ(view.losses.size(), lines + 1);
  EXPECT_EQ(view.step, 590);
}

TEST(RunView, JsonHasWhatIsShown) {
  const auto json = view_of_a_run().json(kNow);
  EXPECT_EQ(json["state"], "running");
  EXPECT_EQ(json["global_step"], 583);
  EXPECT_EQ(json["best"], (nlohmann::json{{"global_step", 450}, {"eval/loss", 0.1811}}));
  EXPECT_EQ(json["checkpoint"]["global_step"], 500);
  EXPECT_EQ(json["seconds"], 80);
  EXPECT_EQ(json["metrics"]["perf/mfu"], 0.412);
}

}  // namespace
}  // namespace tightloop
