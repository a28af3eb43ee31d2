#include "train/report/metrics.h"

#include <chrono>
#include <ctime>
#include <fstream>
#include <set>
#include <thread>

#include "core/config.h"
#include "core/files.h"
#include "support.h"
#include "train/report/sinks.h"
#include "train/settings/recipe.h"

namespace tightloop::testing {
namespace {

using std::chrono::milliseconds;

std::set<std::string> names(const nlohmann::json& values) {
  std::set<std::string> found;
  for (const auto& [name, value] : values.items()) found.insert(name);
  return found;
}

std::vector<int64_t> steps_where(const std::function<bool(int64_t)>& is_due, int64_t last) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= last; ++step)
    if (is_due(step)) steps.push_back(step);
  return steps;
}

TEST(Due, EverythingHasItsOwnSteps) {
  LogConfig config;
  config.detail_steps = 50, config.dataset_metrics_steps = 30, config.memory_steps = 40;
  config.flops_steps = 60;
  const auto when = [&](auto part) {
    return steps_where([&](int64_t step) { return due(config, step - 1, step).*part; }, 120);
  };
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(when(&Due::detail), (Steps{50, 100}));
  EXPECT_EQ(when(&Due::datasets), (Steps{30, 60, 90, 120}));
  EXPECT_EQ(when(&Due::memory), (Steps{40, 80, 120}));
  EXPECT_EQ(when(&Due::flops), (Steps{1, 60, 120}));
}

TEST(Due, ALineTellsWhatFellBetweenItAndTheOneBefore) {
  LogConfig config;
  config.detail_steps = 50;
  const auto lines =
      steps_where([&](int64_t step) { return step % 30 == 0 && due(config, step - 30, step).detail; }, 240);
  EXPECT_EQ(lines, (std::vector<int64_t>{60, 120, 150, 210})) << "for 50, 100, 150 and 200";
  config.detail_steps = 10;
  EXPECT_TRUE(due(config, 30, 60).detail);
}

TEST(Due, DefaultsAreThoseOfTheSpecification) {
  const LogConfig config;
  EXPECT_EQ(config.detail_steps, 50);
  EXPECT_EQ(config.dataset_metrics_steps, 10);
  EXPECT_EQ(config.flush_steps, 200);
  EXPECT_EQ(config.memory_steps, 50);
  EXPECT_EQ(config.flops_steps, 500);
  EXPECT_FALSE(config.reduced_logging);
  EXPECT_TRUE(config.log_dataset_metrics);
  EXPECT_TRUE(config.asynchronous);
}

TEST(Due, TheLastLineTellsEverythingOnceMore) {
  const Due last = due({}, 6, 7, true);
  EXPECT_TRUE(last.detail && last.datasets && last.memory && last.flops);
  const Due other = due({}, 6, 7);
  EXPECT_FALSE(other.detail || other.datasets || other.memory || other.flops);
}

TEST(Due, WhatIsTurnedOffIsNeverDue) {
  LogConfig config;
  config.detail_steps = config.memory_steps = config.flops_steps = 0;
  config.log_dataset_metrics = false;
  for (int64_t step = 1; step <= 1000; ++step) {
    const Due now = due(config, step - 1, step, step == 1000);
    EXPECT_FALSE(now.detail || now.datasets || now.memory || now.flops) << step;
  }
  config = {};
  config.reduced_logging = true;
  const Due now = due(config, 0, 1000, true);
  EXPECT_FALSE(now.detail || now.datasets || now.memory || now.flops);
}

TEST(Due, IsSetFromTheCommandLine) {
  Recipe recipe;
  recipe.bind().apply(
      {"--log.detail_steps", "5", "--log.reduced_logging", "true", "--log.asynchronous=false"});
  EXPECT_EQ(recipe.log.detail_steps, 5);
  EXPECT_TRUE(recipe.log.reduced_logging);
  EXPECT_FALSE(recipe.log.asynchronous);
  EXPECT_NE(error_of(ExitCode::kUsage,
                     [&] {
                       recipe.bind().apply({"--log.detail_step", "5"});
                     })
                .find("log.detail_steps"),
            std::string::npos);
}

IntervalReport full_report() {
  IntervalReport report{.step = 50, .total_steps = 300};
  report.values = {{"training/loss", 2.5},
                   {"training/lr", 1e-3},
                   {"training/epoch", 0.25},
                   {"syncs", 5},
                   {"training/grad_norm", 0.5},
                   {"perf/step_time", 0.1},
                   {"perf/mfu", 0.4},
                   {"perf/tokens_per_second", 1000.0},
                   {"perf/data_wait", 0.01},
                   {"perf/flops_per_token", 6e6},
                   {"perf/flops_per_token_counted", 5e6},
                   {"memory/allocated_gib", 1.0},
                   {"memory/reserved_gib", 2.0},
                   {"memory/peak_gib", 3.0},
                   {"training/accuracy", 0.75},
                   {"training/loss/<source>", {{"a", 2.0}, {"b", 3.0}}},
                   {"training/accuracy/<source>", {{"a", 0.5}, {"b", 1.0}}},
                   {"training/balance_loss", 0.02},
                   {"training/expert_loads", {{0.5, 0.5}}},
                   {"training/loss_scale", 1024.0},
                   {"training/empty_batches", 1},
                   {"training/skipped_steps", 2}};
  return report;
}

TEST(MetricsLines, HaveTheNamesOfTheDocumentation) {
  const auto values = values_of(full_report(), false);
  EXPECT_EQ(names(values), (std::set<std::string>{"global_step",
                                                  "syncs",
                                                  "training/loss",
                                                  "training/lr",
                                                  "training/epoch",
                                                  "training/grad_norm",
                                                  "perf/step_time",
                                                  "perf/mfu",
                                                  "perf/tokens_per_second",
                                                  "perf/data_wait",
                                                  "perf/flops_per_token",
                                                  "perf/flops_per_token_counted",
                                                  "memory/allocated_gib",
                                                  "memory/reserved_gib",
                                                  "memory/peak_gib",
                                                  "training/accuracy",
                                                  "training/loss/a",
                                                  "training/loss/b",
                                                  "training/accuracy/a",
                                                  "training/accuracy/b",
                                                  "training/balance_loss",
                                                  "training/expert_loads",
                                                  "training/loss_scale",
                                                  "training/empty_batches",
                                                  "training/skipped_steps"}));
  EXPECT_EQ(values["global_step"], 50);
  EXPECT_EQ(values["training/loss/b"], 3.0);
  EXPECT_EQ(values["training/accuracy/a"], 0.5);
}

TEST(MetricsLines, LeaveOutWhatIsNotDue) {
  const auto all = names(values_of(full_report(), false));
  const auto left_out = [&](const Due& due) {
    auto report = full_report();
    report.due = due;
    EXPECT_EQ(progress_text(report), progress_text(full_report())) << "the terminal has its own pace";
    auto gone = all;
    for (const auto& name : names(values_of(report, false))) gone.erase(name);
    return gone;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(left_out({.detail = true, .datasets = true, .memory = true, .flops = true}), Names{});
  EXPECT_EQ(left_out({.datasets = true, .memory = true, .flops = true}),
            (Names{"training/grad_norm", "perf/step_time", "perf/mfu", "perf/tokens_per_second",
                   "perf/data_wait"}));
  EXPECT_EQ(left_out({.detail = true, .memory = true, .flops = true}),
            (Names{"training/accuracy", "training/loss/a", "training/loss/b", "training/accuracy/a",
                   "training/accuracy/b"}));
  EXPECT_EQ(left_out({.detail = true, .datasets = true, .flops = true}),
            (Names{"memory/allocated_gib", "memory/reserved_gib", "memory/peak_gib"}));
  EXPECT_EQ(left_out({.detail = true, .datasets = true, .memory = true}),
            (Names{"perf/flops_per_token", "perf/flops_per_token_counted"}));
}

TEST(MetricsLines, HoldNothingThatWasNotGiven) {
  IntervalReport report{.step = 10, .total_steps = 300};
  EXPECT_EQ(names(values_of(report, false)), std::set<std::string>{"global_step"});
  report.set("training/loss", 2.5);
  report.set("training/lr", 1e-3);
  EXPECT_EQ(names(values_of(report, false)),
            (std::set<std::string>{"global_step", "training/loss", "training/lr"}));
}

TEST(MetricsLines, ReducedAreFourNumbers) {
  EXPECT_EQ(names(values_of(full_report(), true)),
            (std::set<std::string>{"global_step", "training/loss", "training/lr", "training/epoch"}));
}

TEST(MetricsLines, AProgressLineMarksARunningAverage) {
  auto report = full_report();
  EXPECT_EQ(progress_text(report), "step  50/300  loss 2.5000  lr 1.00e-03  1.00k tok/s  25s left");
  report.running = true;
  EXPECT_EQ(progress_text(report), "step  50/300  loss ~2.5000  lr 1.00e-03  1.00k tok/s  25s left");
}

/// What a sink was told, readable while it is being told.
struct Record {
  std::mutex mutex;
  std::vector<nlohmann::json> lines;
  std::vector<size_t> flushes;  // lines before each
  std::set<std::thread::id> threads;
  milliseconds pause{0};
  size_t fail_at = SIZE_MAX;

  size_t flushed() {
    std::lock_guard lock(mutex);
    return flushes.size();
  }
};

class RecordSink : public Sink {
 public:
  explicit RecordSink(Record& record) : record_(record) {}
  std::string name() const override { return "the record"; }
  void write(const MetricsLine& line) override {
    std::this_thread::sleep_for(record_.pause);
    std::lock_guard lock(record_.mutex);
    record_.threads.insert(std::this_thread::get_id());
    if (record_.lines.size() == record_.fail_at) throw std::runtime_error("planted");
    record_.lines.push_back(line.values);
  }
  void flush() override {
    std::lock_guard lock(record_.mutex);
    record_.flushes.push_back(record_.lines.size());
  }
  void rewind(int64_t step) override {
    std::lock_guard lock(record_.mutex);
    record_.lines.push_back({{"rewound", step}});
  }

 private:
  Record& record_;
};

template <class... Records>
std::vector<std::unique_ptr<Sink>> sinks(Records&... records) {
  std::vector<std::unique_ptr<Sink>> made;
  (made.push_back(std::make_unique<RecordSink>(records)), ...);
  return made;
}

IntervalReport report_of(int64_t step, double loss) {
  IntervalReport report{.step = step, .total_steps = 1000};
  report.values = {{"training/loss", loss}, {"training/lr", 0.1}};
  return report;
}

bool wait_until(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

TEST(Metrics, EverySinkGetsEveryLineInOrder) {
  for (const bool asynchronous : {true, false}) {
    Record one, two;
    LogConfig config;
    config.asynchronous = asynchronous;
    Metrics metrics(config, sinks(one, two));
    for (int64_t step = 1; step <= 500; ++step) {
      metrics.interval(report_of(step, static_cast<double>(step)));
      if (step % 100 == 0) metrics.line({{"global_step", step}, {"eval/loss", 1.5}});
    }
    const auto losses = metrics.finish();
    ASSERT_EQ(losses.size(), 500u);
    EXPECT_EQ(losses[41], 42.0);
    ASSERT_EQ(one.lines.size(), 505u);
    EXPECT_EQ(one.lines, two.lines);
    EXPECT_EQ(one.lines[99]["training/loss"], 100.0);
    auto evaluation = one.lines[100];
    EXPECT_NEAR(evaluation.at("time").get<double>(), static_cast<double>(std::time(nullptr)), 60);
    evaluation.erase("time");
    EXPECT_EQ(evaluation, (nlohmann::json{{"global_step", 100}, {"eval/loss", 1.5}}));
    EXPECT_EQ(one.threads.size(), 1u);
    EXPECT_EQ(one.threads.contains(std::this_thread::get_id()), !asynchronous);
    EXPECT_EQ(one.flushes.back(), 505u) << "at the end";
  }
}

TEST(Metrics, TheTrainingThreadDoesNotWaitForSinks) {
  using Clock = std::chrono::steady_clock;
  Record slow;
  slow.pause = milliseconds(50);
  Metrics metrics({}, sinks(slow));
  const auto start = Clock::now();
  for (int64_t step = 1; step <= 20; ++step) metrics.interval(report_of(step, 1));
  EXPECT_LT(Clock::now() - start, milliseconds(500));
  metrics.finish();
  EXPECT_EQ(slow.lines.size(), 20u);
}

TEST(Metrics, ARewindComesInOrderAndForgetsLosses) {
  for (const bool asynchronous : {true, false}) {
    Record record;
    LogConfig config;
    config.asynchronous = asynchronous;
    Metrics metrics(config, sinks(record));
    for (int64_t step = 10; step <= 30; step += 10)
      metrics.interval(report_of(step, static_cast<double>(step)));
    metrics.rewind(15);
    metrics.interval(report_of(20, 21));
    EXPECT_EQ(metrics.finish(), (std::vector<double>{10, 21}));
    ASSERT_EQ(record.lines.size(), 5u);
    EXPECT_EQ(record.lines[3], (nlohmann::json{{"rewound", 15}}));
    EXPECT_EQ(record.lines[4]["global_step"], 20);
  }
}

TEST(Metrics, ASinkThatHangsDoesNotStopTraining) {
  Record stuck;
  Metrics metrics({}, sinks(stuck));
  stuck.mutex.lock();  // as a terminal does after Ctrl-S
  auto running = report_of(1, 1);
  running.running = true;
  for (int i = 0; i < 100'000; ++i) metrics.interval(running);
  for (int64_t step = 1; step <= 10'000; ++step) metrics.interval(report_of(step, 1));
  metrics.rewind(7);
  metrics.interval(report_of(8, 1));
  stuck.mutex.unlock();
  EXPECT_EQ(metrics.finish().size(), 8u);
  int64_t averages = 0, rewound = 0;
  for (const auto& line : stuck.lines)
    averages += line.value("global_step", 0) == 1, rewound += line.contains("rewound");
  EXPECT_LE(averages, 3) << "averages that nobody looked at are not kept";
  EXPECT_GT(stuck.lines.size(), 4000u);
  EXPECT_LT(stuck.lines.size(), 4200u);
  EXPECT_EQ(rewound, 1) << "what was forgotten stays forgotten, though there was no room to say it";
}

TEST(Metrics, AreFlushedEverySoManySteps) {
  Record record;
  LogConfig config;
  config.flush_steps = 200, config.asynchronous = false;
  Metrics metrics(config, sinks(record));
  for (int64_t step = 30; step <= 900; step += 30) metrics.interval(report_of(step, 1));
  EXPECT_EQ(record.flushes, (std::vector<size_t>{7, 14, 20, 27})) << "after steps 210, 420, 600, 810";
  metrics.flush();
  EXPECT_EQ(record.flushes.back(), 30u);
  metrics.flush();
  EXPECT_EQ(record.flushed(), 5u) << "nothing new";
}

TEST(Metrics, AreFlushedWhenNothingComes) {
  Record record;
  Metrics metrics({}, sinks(record));
  metrics.interval(report_of(1, 1));
  EXPECT_TRUE(wait_until([&] { return record.flushed() == 1; }));
}

TEST(Metrics, ASinkThatFailsDoesNotEndTheOthers) {
  Record broken, sound;
  broken.fail_at = 3;
  Metrics metrics({}, sinks(broken, sound));
  for (int64_t step = 1; step <= 10; ++step) metrics.interval(report_of(step, 1));
  EXPECT_EQ(metrics.finish().size(), 10u);
  EXPECT_EQ(broken.lines.size(), 3u);
  EXPECT_EQ(sound.lines.size(), 10u);
}

TEST(Metrics, WithoutSinksOnlyCountLosses) {
  Metrics metrics({}, {});
  metrics.interval(report_of(1, 2.5));
  EXPECT_EQ(metrics.finish(), std::vector<double>{2.5});
}

std::vector<nlohmann::json> lines_of(const fs::path& file) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(MetricsFile, NumbersThatAreNotFiniteAreNotWrittenAsNull) {
  const TempFolder folder;
  {
    Metrics metrics({}, standard_sinks(folder / "metrics.jsonl", 0));
    auto report = report_of(1, NAN);
    report.set("training/grad_norm", INFINITY);
    report.set("training/expert_loads", {{0.5, -INFINITY}});
    metrics.interval(report);
    metrics.line({{"global_step", 2}, {"eval/loss", NAN}});
  }
  const auto lines = lines_of(folder / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["training/loss"], "NaN");
  EXPECT_EQ(lines[0]["training/grad_norm"], "Infinity");
  EXPECT_EQ(lines[0]["training/expert_loads"], (nlohmann::json{{0.5, "-Infinity"}}));
  EXPECT_EQ(lines[1]["eval/loss"], "NaN");
}

TEST(MetricsFile, OneThatIsRemovedIsNotWrittenOnInSilence) {
  const TempFolder folder;
  JsonLinesSink sink(folder / "metrics.jsonl", 0);
  sink.write({{{"global_step", 1}}});
  sink.flush();
  fs::remove(folder / "metrics.jsonl");
  sink.write({{{"global_step", 2}}});
  testing::error_of(ExitCode::kCheckpoint, [&] { sink.flush(); });
}

TEST(MetricsFile, HoldsNoRunningAverages) {
  const TempFolder folder;
  Metrics metrics({}, standard_sinks(folder / "metrics.jsonl", 0));
  for (int64_t step = 1; step <= 4; ++step) {
    auto report = report_of(step, static_cast<double>(step));
    report.running = step != 4;
    metrics.interval(report);
  }
  EXPECT_EQ(metrics.finish(), std::vector<double>{4});
  const auto lines = lines_of(folder / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["global_step"], 4);
}

TEST(MetricsFile, IsReadableBeforeTheEnd) {
  const TempFolder folder;
  Metrics metrics({}, standard_sinks(folder / "metrics.jsonl", 0));
  metrics.interval(report_of(10, 1));
  metrics.flush();
  EXPECT_TRUE(wait_until([&] { return lines_of(folder / "metrics.jsonl").size() == 1; }));
}

TEST(MetricsFile, AResumedRunDropsLaterLinesAndBrokenOnes) {
  const TempFolder folder;
  const auto file = folder / "metrics.jsonl";
  write_file_whole(file,
                   "{\"global_step\":10,\"training/loss\":3.0}\n{\"eval/loss\":2.0,\"global_step\":20}\n"
                   "{\"global_step\":30}\n{\"global_st");
  {
    Metrics metrics({}, standard_sinks(file, 20));
    metrics.interval(report_of(30, 1));
  }
  const auto lines = lines_of(file);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["training/loss"], 3.0);
  EXPECT_EQ(lines[1]["eval/loss"], 2.0);
  EXPECT_EQ(lines[2]["global_step"], 30);
  EXPECT_TRUE(lines[2].contains("training/loss"));
}

TEST(MetricsFile, LinesWhoseStepIsNoNumberAreNoTrouble) {
  const TempFolder folder;
  const auto file = folder / "metrics.jsonl";
  write_file_whole(file, "{\"global_step\":\"ten\"}\n{\"global_step\":30}\n");
  JsonLinesSink sink(file, 20);
  sink.write({{{"global_step", 21}, {"training/loss/\xff", 1.0}}});
  sink.flush();
  const auto lines = lines_of(file);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["global_step"], 21) << "a name that is not UTF-8 does not end the file";
}

TEST(MetricsFile, AFolderThatIsNotThereIsASentence) {
  const TempFolder folder;
  const auto message = error_of(ExitCode::kCheckpoint, [&] { standard_sinks(folder / "no" / "m.jsonl", 0); });
  EXPECT_NE(message.find("m.jsonl"), std::string::npos);
}

TEST(MetricsFile, AFullDiskIsNoticed) {
  SKIP_WITHOUT("/dev/full");
  JsonLinesSink sink("/dev/full", 0);
  sink.write({nlohmann::json{{"global_step", 1}}});
  const auto message = error_of(ExitCode::kCheckpoint, [&] { sink.flush(); });
  EXPECT_NE(message.find("disk full"), std::string::npos);
}

}  // namespace
}  // namespace tightloop::testing
