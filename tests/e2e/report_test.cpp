// tightloop report: the page of runs that were trained, what it says of broken ones, and the server.
#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace tightloop::testing {
namespace {

/// Two runs, a and b, which differ in their rate; a was stopped and resumed, and has lines that are hostile.
class Reports : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    const std::string more = "--train.steps 60 --train.eval_steps 20 --log.detail_steps 5 ";
    train(tiny() + more + "--train.stop_at 30 --run.name a");
    train("--resume runs/a --train.stop_at 0");
    train(tiny() + more + "--train.lr 0.002 --run.name b");
    append("metrics.jsonl", R"({"global_step": 60, "training/grad_norm": "NaN"})"
                            "\n{\"global_step\": 60, \"trai\n");
    append("samples.jsonl", R"({"global_step": 60, "kind": "continuation", "prompt": "<img src=x onerror=)"
                            R"(window.stolen=1>", "text": "</script><script>window.stolen = 1</script><b>"})"
                            "\n");
    append("events.jsonl", R"({"global_step": 60, "event": "<b>odd</b>", "text": "<img src=x>"})"
                           "\n"
                           R"({"global_step": 60, "event": "finished", "text": "done"})"
                           "\n");
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static void train(const std::string& arguments) {
    const auto outcome = run(folder_->path(), "tightloop train " + arguments);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  }
  static void append(const std::string& name, const std::string& text) {
    std::ofstream(*folder_ / "runs" / "a" / name, std::ios::app) << text;
  }
  static Outcome report(const std::string& arguments) {
    return run(folder_->path(), "tightloop report " + arguments);
  }
  /// The data of a page, as a browser finds it.
  static nlohmann::json data_of(const fs::path& file) {
    const std::string page = read_file(file), begin = "id=\"data\">";
    const size_t at = page.find(begin) + begin.size();
    return nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
  }

  static TempFolder* folder_;
};

TempFolder* Reports::folder_ = nullptr;

TEST_F(Reports, OneRunIsWrittenIntoItsFolder) {
  const auto outcome = report("runs/a");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "runs/a/report.html")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "1 line of metrics.jsonl cannot be read")) << outcome.output;
  const auto page = read_file(*folder_ / "runs/a/report.html");
  for (const char* outside : {"https://", "//cdn", "@import", "src=\"", "<link", "url("})
    EXPECT_FALSE(contains(page, outside)) << outside;
  const auto data = data_of(*folder_ / "runs/a/report.html")["runs"][0];
  EXPECT_EQ(data["state"], "finished");
  EXPECT_EQ(data["step"], 60);
  EXPECT_GT(data["curves"]["training/loss"]["values"].size(), 8u);
  EXPECT_GT(data["curves"]["perf/forward_time"]["values"].size(), 3u) << "the step's time by part";
  EXPECT_FALSE(data["machine"]["device"].get<std::string>().empty());
  EXPECT_FALSE(contains(page, "<img")) << "text of a run is not HTML";
  EXPECT_FALSE(contains(page, "<script>window"));
}

TEST_F(Reports, ThePageHasTheFilesOfTheTree) {
  ASSERT_EQ(report("runs/b").exit_code, 0);
  const auto page = read_file(*folder_ / "runs/b/report.html");
  for (const char* name :
       {"serve/page/look.css", "serve/page/element.js", "cli/page/report.css", "cli/page/series.js",
        "cli/page/chart.js", "cli/page/chart_input.js", "cli/page/panels.js", "cli/page/sections.js",
        "cli/page/report.js"})
    EXPECT_TRUE(contains(page, read_file(fs::path(TIGHTLOOP_SOURCE_DIR "/src") / name))) << name;
}

TEST_F(Reports, SeveralRunsAreWrittenHere) {
  ASSERT_EQ(report("runs/a b runs/a/").exit_code, 0);
  const auto data = data_of(*folder_ / "report.html");
  ASSERT_EQ(data["runs"].size(), 2u) << "a run that is named twice counts once";
  EXPECT_EQ(data["runs"][1]["name"], "b");
  fs::remove(*folder_ / "report.html");
}

TEST_F(Reports, ABrowserShowsWhatTheRunsWrote) {
  SKIP_WITHOUT(python());
  ASSERT_EQ(report("runs/a").exit_code, 0);
  ASSERT_EQ(report("runs/a runs/b --output both.html").exit_code, 0);
  const auto outcome =
      run(folder_->path(), "'" + python().string() +
                               "' '" TIGHTLOOP_SOURCE_DIR "/tests/e2e/report_page.py' '" TIGHTLOOP_BINARY_DIR
                               "/tightloop' '" +
                               folder_->path().string() + "'");
  if (outcome.exit_code == 77) GTEST_SKIP() << outcome.output;
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST_F(Reports, WhatCannotBeReportedIsASentence) {
  fs::create_directories(*folder_ / "empty");
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"runs/none", "there is no folder 'runs/none'"},
      {"empty", "'empty' is not a run"},
      {"runs/b --output empty", "is a folder"},
      {"runs/b --live --output x.html", "give one of them"},
      {"runs/b --port 8080", "--port goes with --live"},
      {"runs/b --live --port 70000", "65535"},
      {"runs/b --output nowhere/report.html", "the report was not written"},
  };
  for (const auto& [arguments, words] : wrong) {
    const auto outcome = report(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.output;
    EXPECT_TRUE(contains(outcome.output, words)) << arguments << "\n" << outcome.output;
  }
}

TEST_F(Reports, NoFileButAReportIsWrittenOver) {
  std::ofstream(*folder_ / "mine.txt") << "my text";
  const auto config = read_file(*folder_ / "runs/b/config.yaml");
  for (const char* taken : {"mine.txt", "runs/b/config.yaml", "runs/b/new.html", "runs/a/checkpoints/x.html",
                            "runs/b/../a/metrics.jsonl"}) {
    const auto outcome = report("runs/b --output " + std::string(taken));
    EXPECT_EQ(outcome.exit_code, 2) << taken << "\n" << outcome.output;
    EXPECT_TRUE(contains(outcome.output, taken)) << outcome.output;
  }
  EXPECT_EQ(read_file(*folder_ / "mine.txt"), "my text");
  EXPECT_EQ(read_file(*folder_ / "runs/b/config.yaml"), config);
  for (const char* free : {"fresh.html", "fresh.html", "runs/a/report.html", "runs/a/report.html"}) {
    const auto outcome = report("runs/b --output " + std::string(free));
    EXPECT_EQ(outcome.exit_code, 0) << free << "\n" << outcome.output;
  }
}

TEST_F(Reports, ARunWithoutMetricsHasAPageThatSaysSo) {
  fs::create_directories(*folder_ / "runs/fresh/checkpoints");
  const auto outcome = report("runs/fresh");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "metrics.jsonl has no line yet")) << outcome.output;
  EXPECT_EQ(data_of(*folder_ / "runs/fresh/report.html")["runs"][0]["state"], "new");
  fs::remove_all(*folder_ / "runs/fresh");
}

TEST_F(Reports, WithoutANameItIsTheRunThatChangedLast) {
  const TempFolder folder;
  const auto none = run(folder.path(), "tightloop report");
  EXPECT_EQ(none.exit_code, 2) << none.output;
  EXPECT_TRUE(contains(none.output, "Name one, or train one first")) << none.output;
  EXPECT_FALSE(contains(none.output, "--run")) << "report has no such option\n" << none.output;
  const auto newest = report("");
  EXPECT_EQ(newest.exit_code, 0) << newest.output;
  EXPECT_TRUE(contains(newest.output, "report.html")) << newest.output;
  EXPECT_FALSE(contains(newest.output, "--run")) << newest.output;
}

TEST_F(Reports, CtrlCEndsTheServer) {
  const auto outcome =
      run(folder_->path(), signalled("report runs/b --live > url", "grep -q http url", "INT"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(read_file(*folder_ / "url").starts_with("http://127.0.0.1:")) << read_file(*folder_ / "url");
}

}  // namespace
}  // namespace tightloop::testing
