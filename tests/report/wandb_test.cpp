// Weights & Biases, offline, through its own package.
#include "train/report/wandb_sink.h"

#include <signal.h>

#include <algorithm>
#include <map>
#include <thread>

#include "report/watch.h"
#include "train/run/checkpoint.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop::testing {
namespace {

using namespace std::chrono_literals;

#define SKIP_WITHOUT_WANDB() \
  if (!fs::exists(watch_python())) GTEST_SKIP() << "not here: " << watch_python() << " (tools/setup --watch)"

WandbConfig offline_wandb() {
  WandbConfig config;
  config.mode = WandbMode::kOffline, config.python = watch_python();
  return config;
}

/// A program that is taken for a Python.
std::string stand_in(const TempFolder& folder, const std::string& script) {
  const auto file = folder / "python";
  write_file(file, "#!/bin/sh\n" + script + "\n");
  fs::permissions(file, fs::perms::owner_all);
  return file;
}

/// What W&B kept, once its helper is done; on a busy machine that may be after the run.
nlohmann::json kept_by_wandb(const fs::path& run) {
  nlohmann::json kept;
  for (int i = 0; i < 60; ++i, std::this_thread::sleep_for(1s)) {
    kept = read_back("read_wandb.py", run);
    const auto is_done = [](const nlohmann::json& part) { return part.contains("exit_code"); };
    if (!kept.empty() && std::ranges::all_of(kept, is_done)) break;
  }
  return kept;
}

MetricsLine wandb_line(int64_t step, double loss) {
  return {{{"global_step", step}, {"time", 1e9}, {"training/loss", loss}}};
}

TEST(Wandb, HasTheHistoryOfARunThatWasResumed) {
  SKIP_WITHOUT_WANDB();
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = small_recipe();
  recipe.wandb = offline_wandb();
  recipe.wandb.project = "my project", recipe.wandb.tags = {"one", "two"};
  recipe.train.steps = 20, recipe.train.eval_steps = 8, recipe.train.stop_at = 12;
  Trainer(recipe, run).run();
  recipe.train.stop_at = 0;
  Trainer(recipe, run, {.resume_from = load_checkpoint(run.checkpoints())}).run();
  const auto lines = json_lines(run.metrics());
  const auto kept = kept_by_wandb(run.root());
  ASSERT_EQ(kept.size(), 2u) << kept;
  EXPECT_EQ(kept[0].at("id"), kept[1].at("id")) << "it goes on with the same W&B run";
  EXPECT_EQ(kept[0].at("project"), "my project");
  EXPECT_EQ(kept[0].at("name"), "run");
  EXPECT_EQ(kept[0].at("tags"), (nlohmann::json{"one", "two"}));
  EXPECT_EQ(kept[0].at("config").at("train").at("micro_batch"), 8);
  EXPECT_EQ(kept[0].at("config").at("train").at("lr"), 1e-2);
  EXPECT_EQ(kept[1].at("exit_code"), 0);
  EXPECT_EQ(kept[1].at("summary").at("last_step"), 20);
  std::map<int64_t, nlohmann::json> rows;  // lines of one step are one row of its history
  for (const auto& part : kept)
    for (const auto& row : part.at("history")) {
      EXPECT_FALSE(rows.contains(row.at("_step"))) << row;
      rows[row.at("_step")] = row;
    }
  for (const auto& line : lines)
    for (const char* name : {"training/loss", "training/lr", "eval/loss"}) {
      if (!line.contains(name)) continue;
      const auto& row = rows.at(line.at("global_step"));
      EXPECT_EQ(row.at(name).get<double>(), line.at(name).get<double>()) << row;
    }
}

TEST(Wandb, HasHistogramsSamplesAndNumbersThatAreNotFinite) {
  SKIP_WITHOUT_WANDB();
  const TempFolder folder;
  {
    WandbSink sink(offline_wandb(), folder.path(), {{"train", {{"lr", 0.5}}}});
    sink.write({{{"global_step", 10}, {"training/loss", "NaN"}, {"loads", {{1, 3}, {2, 2}}}}});
    sink.sample({{"global_step", 10}, {"kind", "answer"}, {"prompt", "p"}, {"text", "t\xff"}});
    sink.write(wandb_line(20, 1.25));
    sink.finish(/*failed=*/true);
  }
  const auto kept = kept_by_wandb(folder.path());
  ASSERT_EQ(kept.size(), 1u) << kept;
  const auto& history = kept[0].at("history");
  ASSERT_EQ(history.size(), 2u) << history;
  EXPECT_EQ(history[0].at("training/loss"), "nan");
  EXPECT_EQ(history[0].at("loads/0/_type"), "histogram") << history[0];
  EXPECT_EQ(history[0].at("samples/_type"), "table-file") << history[0];
  EXPECT_EQ(history[1].at("training/loss"), 1.25);
  EXPECT_EQ(history[1].at("_timestamp"), 1e9) << "when the line was made";
  EXPECT_EQ(kept[0].at("exit_code"), 1);
}

TEST(Wandb, APackageThatIsMissingIsASentenceBeforeTheFirstStep) {
  SKIP_WITHOUT(python());
  const TempFolder folder;
  auto config = offline_wandb();
  config.python = python();
  const WandbSink::Limits patient{.beginning = 30s};  // on a busy machine Python takes its time
  const auto message =
      error_of(ExitCode::kFailure, [&] { WandbSink sink(config, folder.path(), {}, patient); });
  EXPECT_NE(message.find("-m pip install wandb"), std::string::npos) << message;
  EXPECT_NE(message.find("wandb.python"), std::string::npos) << message;
}

TEST(Wandb, AHelperThatIsKilledIsSaidOnceAndCostsNothingElse) {
  const TempFolder folder;
  auto config = offline_wandb();
  config.python = stand_in(folder, "exec sleep 60");
  auto sink = std::make_unique<WandbSink>(config, folder.path(), nlohmann::json::object());
  ::kill(sink->pid(), SIGKILL);
  std::string message;
  for (int i = 0; i < 1000 && message.empty(); ++i, std::this_thread::sleep_for(5ms)) {
    try {
      sink->write(wandb_line(i, 1));
    } catch (const Error& error) {
      message = error.what();
    }
  }
  EXPECT_NE(message.find("signal 9"), std::string::npos) << message;
  EXPECT_NE(message.find("messages.txt"), std::string::npos) << message;
}

TEST(Wandb, TheBestLossIsThatOfTheWholeRun) {
  const TempFolder folder;
  write_file(folder / "metrics.jsonl", "{\"global_step\":10,\"eval/loss\":0.25}\n");
  auto config = offline_wandb();
  config.python = stand_in(folder, "exec cat > '" + (folder / "said").string() + "'");
  WandbSink sink(config, folder.path(), nlohmann::json::object());
  sink.write({{{"global_step", 20}, {"time", 1e9}, {"eval/loss", 0.5}}});
  try {
    sink.finish(false);
  } catch (const Error&) {  // it does not say that it has finished
  }
  EXPECT_NE(read_file(folder / "said").find("\"best_eval_loss\":0.25"), std::string::npos)
      << read_file(folder / "said");
}

TEST(Wandb, AHelperThatIsStuckDoesNotHoldUpTheEnd) {
  const TempFolder folder;
  auto config = offline_wandb();
  config.python = stand_in(folder, "exec sleep 60");
  WandbSink sink(config, folder.path(), nlohmann::json::object(),
                 {.waiting_bytes = 1000, .beginning = 0ms, .patience = 100ms});
  const auto start = std::chrono::steady_clock::now();
  for (int64_t step = 1; step <= 20'000; ++step) sink.write(wandb_line(step, 1));
  sink.finish(false);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
  ::kill(sink.pid(), SIGKILL);
}

TEST(Wandb, ARunKeepsItsId) {
  const TempFolder folder;
  const auto id = wandb_id(folder / "a", "");
  EXPECT_EQ(id.size(), 12u);
  EXPECT_EQ(wandb_id(folder / "a", ""), id);
  EXPECT_NE(wandb_id(folder / "b", ""), id);
  EXPECT_EQ(wandb_id(folder / "a", "given"), "given");
}

}  // namespace
}  // namespace tightloop::testing
