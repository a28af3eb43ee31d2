#include "train/watch/run_report.h"

#include "core/files.h"
#include "core/folder_lock.h"
#include "support.h"

namespace tightloop::testing {
namespace {

using nlohmann::json;

/// A run's files, without a run.
class RunReports : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_ / "checkpoints");
    write("config.yaml", "train:\n  steps: 100\n  lr: 0.001\n");
    write("metrics.jsonl",
          "{\"global_step\": 10, \"training/loss\": 2.5}\n{\"global_step\": 20, \"training/loss\": 2.0}\n");
    write("events.jsonl", R"({"time": 1000.0, "global_step": 0, "event": "started", "text": "started",)"
                          R"( "steps": 90, "model": "533k", "machine": {"device": "cpu"}})"
                          "\n");
  }
  void write(const std::string& name, const std::string& text) { testing::write_file(root_ / name, text); }
  void append(const std::string& name, const std::string& text) {
    std::ofstream(root_ / name, std::ios::app) << text;
  }
  static bool says(const json& run, const std::string& part) {
    return run["notes"].dump().find(part) != std::string::npos;
  }

  const TempFolder folder_;
  const fs::path root_ = folder_.path() / "mine";
};

TEST_F(RunReports, HasWhatTheRunWrote) {
  const json run = RunReport(root_).read();
  EXPECT_EQ(run["name"], "mine");
  EXPECT_EQ(run["state"], "crashed") << "it started, did not end, and nobody trains it";
  EXPECT_EQ(run["step"], 20);
  EXPECT_EQ(run["steps"], 90) << "as it was started with";
  EXPECT_EQ(run["settings"]["train.lr"], "0.001");
  EXPECT_EQ(run["machine"]["device"], "cpu");
  EXPECT_EQ(run["model"], "533k");
  EXPECT_EQ(run["curves"]["training/loss"]["values"], (json{2.5, 2.0}));
  EXPECT_EQ(run["events"].size(), 1u);
  EXPECT_TRUE(run["notes"].empty()) << run["notes"];
}

TEST_F(RunReports, ANameMayEndWithASlash) { EXPECT_EQ(RunReport(root_ / "").read()["name"], "mine"); }

TEST_F(RunReports, SaysHowTheRunStands) {
  RunReport report(root_);
  {
    const FolderLock lock(root_);
    ASSERT_TRUE(lock.held());
    EXPECT_EQ(report.read()["state"], "running");
  }
  append("events.jsonl", "{\"event\": \"stopped\", \"global_step\": 20}\n");
  EXPECT_EQ(report.read()["state"], "stopped");
  append("events.jsonl", "{\"event\": \"finished\", \"global_step\": 20}\n");
  EXPECT_EQ(report.read()["state"], "finished");
  append("events.jsonl", "{\"event\": \"failed\", \"global_step\": 20}\n");
  EXPECT_EQ(report.read()["state"], "crashed");
  append("events.jsonl", "{\"event\": 7}\n");
  EXPECT_EQ(report.read()["state"], "crashed");
}

TEST_F(RunReports, FollowsARunThatGoesOn) {
  RunReport report(root_);
  report.read();
  append("metrics.jsonl", "{\"global_step\": 30, \"training/loss\": 1.5}\n{\"global_step\": 40, \"trai");
  EXPECT_EQ(report.read()["curves"]["training/loss"]["values"], (json{2.5, 2.0, 1.5}))
      << "a line that is not whole yet waits";
  append("metrics.jsonl", "ning/loss\": 1.25}\n");
  EXPECT_EQ(report.read()["step"], 40);
}

TEST_F(RunReports, ARunThatIsResumedDropsLines) {
  RunReport report(root_);
  report.read();
  write_file_whole(root_ / "metrics.jsonl", "{\"global_step\": 10, \"training/loss\": 2.5}\n");
  const json run = report.read();
  EXPECT_EQ(run["curves"]["training/loss"]["values"], (json{2.5}));
  EXPECT_TRUE(run["notes"].empty()) << run["notes"];
}

TEST_F(RunReports, TheBestIsOfEvaluationsOnTheSameData) {
  EXPECT_FALSE(RunReport(root_).read().contains("best_after"));
  append("events.jsonl", "{\"event\": \"resumed\", \"global_step\": 25, \"best_after\": 20}\n");
  append("events.jsonl", "{\"event\": \"resumed\", \"global_step\": 30}\n");
  EXPECT_EQ(RunReport(root_).read()["best_after"], 20);
}

TEST_F(RunReports, BrokenLinesAreCountedAndLeftOut) {
  append("metrics.jsonl",
         "{\"global_step\": 30, \"train\n\n{\"global_step\": 40, \"training/loss\": 1}\n[1]\n");
  append("events.jsonl", "???\n");
  const json run = RunReport(root_).read();
  EXPECT_EQ(run["curves"]["training/loss"]["steps"], (json{10, 20, 40}));
  EXPECT_TRUE(says(run, "3 lines of metrics.jsonl cannot be read and are left out.")) << run["notes"];
  EXPECT_TRUE(says(run, "1 line of events.jsonl cannot be read and is left out.")) << run["notes"];
}

TEST_F(RunReports, ARunWithoutMetricsSaysSo) {
  fs::remove(root_ / "metrics.jsonl");
  const json run = RunReport(root_).read();
  EXPECT_TRUE(run["curves"].empty());
  EXPECT_TRUE(says(run, "metrics.jsonl has no line yet")) << run["notes"];
}

TEST_F(RunReports, ARunWithoutSettingsSaysSo) {
  fs::remove(root_ / "config.yaml");
  EXPECT_TRUE(says(RunReport(root_).read(), "config.yaml is not there"));
}

TEST_F(RunReports, AFolderThatGoesAwayLeavesWhatWasRead) {
  RunReport report(root_);
  report.read();
  fs::remove_all(root_);
  const json run = report.read();
  EXPECT_EQ(run["curves"]["training/loss"]["values"], (json{2.5, 2.0}));
  EXPECT_TRUE(says(run, "folder is gone")) << run["notes"];
}

TEST_F(RunReports, LongTextsAndListsAreCut) {
  std::string samples, events;
  for (int i = 0; i < 500; ++i)
    samples +=
        json{{"global_step", i}, {"kind", "answer"}, {"text", std::string(9000, 'x') + "ä"}}.dump() + "\n";
  for (int i = 0; i < 3000; ++i) events += json{{"global_step", i}, {"event", "saved"}}.dump() + "\n";
  write("samples.jsonl", samples);
  write("events.jsonl", events);
  const json run = RunReport(root_).read();
  EXPECT_EQ(run["samples"].size(), RunReport::kMostSamples);
  EXPECT_EQ(run["samples"].back()["step"], 499);
  EXPECT_LE(run["samples"].back()["text"].get<std::string>().size(), RunReport::kMostText + 4);
  EXPECT_EQ(run["events"].size(), RunReport::kMostEvents);
  EXPECT_TRUE(says(run, "The newest 400 of 500 samples")) << run["notes"];
  EXPECT_TRUE(says(run, "The newest 2000 of 3000 events")) << run["notes"];
}

TEST_F(RunReports, RunsOfOneNameAreToldApart) {
  const fs::path other = folder_.path() / "other" / "mine";
  fs::create_directories(other);
  std::vector<RunReport> runs;
  runs.emplace_back(root_), runs.emplace_back(other);
  const json data = report_data(runs);
  EXPECT_EQ(data["runs"][0]["name"], root_.string());
  EXPECT_EQ(data["runs"][1]["name"], other.string());
  EXPECT_EQ(data["runs"][1]["state"], "new");
  EXPECT_FALSE(data["metrics"]["training/loss"].get<std::string>().empty());
}

TEST(ScriptJson, NothingInAStringEndsTheScript) {
  const json evil{{"text", "</script><script>alert(1)</script><!-- & \xE2\x80\xA8 {{script}}"},
                  {"bad", "\xff"}};
  const std::string text = script_json(evil);
  EXPECT_EQ(text.find_first_of("<>&"), std::string::npos) << text;
  EXPECT_EQ(json::parse(text)["text"], evil["text"]);
  EXPECT_EQ(json::parse(text)["bad"], "\xEF\xBF\xBD") << "what is not UTF-8 is replaced";
}

TEST(ScriptJson, NumbersThatAreNotFiniteAreStrings) {
  EXPECT_EQ(script_json({{"x", std::numeric_limits<double>::infinity()}}), R"({"x":"Infinity"})");
}

}  // namespace
}  // namespace tightloop::testing
