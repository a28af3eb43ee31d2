#include "train/watch/run_follower.h"

#include <sys/stat.h>

#include <map>

#include "core/files.h"
#include "core/folder_lock.h"
#include "support.h"
#include "train/run/checkpoint.h"
#include "train/watch/run_list.h"
#include "train/watch/view_text.h"

namespace tightloop {
namespace {

using testing::TempFolder;
using testing::write_file;

void append(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::app) << text; }

fs::path make_run(const TempFolder& folder, const std::string& name) {
  const fs::path root = folder / name;
  fs::create_directories(root / "checkpoints");
  write_file(root / "config.yaml", "train:\n  steps: 100\n  lr: 0.001\n");
  return root;
}

RunState state_of(const fs::path& root) { return summary_of(root).state; }

TEST(RunFollower, ReadsWhatCameSinceTheLastTime) {
  const TempFolder folder;
  const auto root = make_run(folder, "a");
  RunFollower follower(root);
  RunView view;
  follower.read(view);
  EXPECT_EQ(view.name, "a");
  EXPECT_EQ(view.total_steps, 100);
  EXPECT_EQ(view.state, RunState::kNew);
  EXPECT_FALSE(follower.read(view)) << "nothing is new";

  append(root / "events.jsonl", "{\"time\":1,\"global_step\":0,\"event\":\"started\",\"steps\":200}\n");
  append(root / "metrics.jsonl", "{\"global_step\":10,\"training/loss\":3.0}\n{\"global_step\":20,\"trai");
  append(root / "log.txt", "2026-01-01 00:00:00.000 info said\n2026-01-01 00:00:00.000 warning of it\n");
  EXPECT_TRUE(follower.read(view));
  EXPECT_EQ(view.step, 10) << "half a line is none";
  EXPECT_EQ(view.total_steps, 200);
  EXPECT_EQ(view.warnings, 1);
  append(root / "metrics.jsonl", "ning/loss\":2.0}\n");
  EXPECT_TRUE(follower.read(view));
  EXPECT_EQ(view.losses, (std::vector<double>{3, 2}));

  // Resumed: later lines are gone.
  write_file(root / "new", "{\"global_step\":10,\"training/loss\":3.0}\n");
  fs::rename(root / "new", root / "metrics.jsonl");
  append(root / "events.jsonl", "{\"time\":2,\"global_step\":10,\"event\":\"resumed\"}\n");
  EXPECT_TRUE(follower.read(view));
  EXPECT_EQ(view.losses, (std::vector<double>{3}));
  EXPECT_EQ(view.step, 10);
}

TEST(RunFollower, ARunThatWentBackIsAtItsCheckpoint) {
  const TempFolder folder;
  const auto root = make_run(folder, "a");
  append(root / "events.jsonl", "{\"time\":1,\"global_step\":0,\"event\":\"started\",\"steps\":200}\n");
  append(root / "metrics.jsonl",
         "{\"time\":2,\"global_step\":40,\"training/loss\":3.0}\n{\"time\":3,\"global_step\":120}\n");
  RunFollower follower(root);
  RunView view;
  follower.read(view);
  EXPECT_EQ(view.step, 120);
  append(root / "events.jsonl",
         "{\"time\":4,\"global_step\":120,\"event\":\"spike\"}\n"
         "{\"time\":5,\"global_step\":120,\"event\":\"rolled_back\",\"to\":45}\n");
  follower.read(view);
  EXPECT_EQ(view.step, 45) << "the checkpoint's step, not that of the spike";
  write_file(root / "new", "{\"time\":2,\"global_step\":40,\"training/loss\":3.0}\n");
  fs::rename(root / "new", root / "metrics.jsonl");
  follower.read(view);
  EXPECT_EQ(view.step, 45) << "also once its later lines are dropped";
  EXPECT_EQ(view.losses.size(), 1u);
}

TEST(RunFollower, AFailureIsRememberedUntilTheNextStart) {
  const TempFolder folder;
  const auto root = make_run(folder, "a");
  append(root / "events.jsonl",
         "{\"global_step\":5,\"event\":\"failed\",\"text\":\"no memory\"}\n"
         "{\"global_step\":4,\"event\":\"saved\",\"text\":\"a save that was under way\"}\n");
  RunFollower follower(root);
  RunView view;
  follower.read(view);
  EXPECT_EQ(view.state, RunState::kCrashed);
  EXPECT_EQ(view.failure, "no memory");
  EXPECT_EQ(view.json(0)["failure"], "no memory");
  append(root / "events.jsonl", "{\"global_step\":4,\"event\":\"resumed\"}\n");
  follower.read(view);
  EXPECT_EQ(view.failure, "");
}

TEST(RunFollower, TheBestIsByTheMetricOfTheSettings) {
  const TempFolder folder;
  const auto root = make_run(folder, "a");
  append(root / "metrics.jsonl",
         "{\"global_step\":10,\"eval/loss\":1.0,\"eval/accuracy\":0.5}\n"
         "{\"global_step\":20,\"eval/loss\":2.0,\"eval/accuracy\":0.75}\n"
         "{\"global_step\":30,\"eval/loss\":3.0,\"eval/accuracy\":0.25}\n");
  RunFollower follower(root);
  RunView view;
  follower.read(view);
  EXPECT_EQ(view.best(), (std::pair<int64_t, double>{10, 1.0}));
  write_file(root / "config.yaml", "train:\n  best_by: accuracy\n  steps: 100\n");
  follower.read(view);
  const std::pair<int64_t, double> best{20, 0.75};
  EXPECT_EQ(view.best(), best) << "a resumed run may change it";
  EXPECT_EQ(summary_of(root).best(), best);
  EXPECT_EQ(view.json(0)["best"], (nlohmann::json{{"global_step", 20}, {"eval/accuracy", 0.75}}));
  EXPECT_EQ(best_text(view), "accuracy 0.7500 at 20");
}

TEST(RunFollower, LinesOfTheLogAreNewsAndAReplacedRunKeepsItsName) {
  const TempFolder folder;
  const auto root = make_run(folder, "a");
  append(root / "events.jsonl", "{\"time\":1,\"global_step\":0,\"event\":\"started\"}\n");
  RunFollower follower(root);
  RunView view;
  follower.read(view);
  view.news = 1;
  append(root / "log.txt", "2026-01-01 00:00:00.000 info still at it\n");
  EXPECT_TRUE(follower.read(view));
  EXPECT_GT(view.news, 1e9) << "when the log was written";
  append(root / "log.txt", "2026-01-01 00:00:00.000 warning it may fail\n");
  follower.read(view);
  EXPECT_EQ(view.warnings, 1);
  EXPECT_EQ(summary_of(root).warnings, 1);
  write_file(root / "new", "{\"time\":2,\"global_step\":0,\"event\":\"started\",\"steps\":50}\n");
  fs::rename(root / "new", root / "events.jsonl");  // as --overwrite does
  follower.read(view);
  EXPECT_EQ(view.name, "a");
  EXPECT_EQ(view.total_steps, 50);
}

TEST(RunFollower, MoreLinesThanAreReadAtOnceAreAllThere) {
  const TempFolder folder;
  const auto root = make_run(folder, "a");
  std::string lines;
  for (int i = 1; i <= 10'000; ++i)
    lines += "{\"time\":" + std::to_string(i) + ",\"global_step\":" + std::to_string(i) +
             ",\"training/loss\":1.5}\n";
  write_file(root / "metrics.jsonl", lines);
  // In the middle of the second piece the run was resumed at an earlier step.
  append(root / "events.jsonl", "{\"time\":6000,\"global_step\":20,\"event\":\"resumed\",\"steps\":9}\n");
  RunFollower follower(root);
  RunView view;
  EXPECT_TRUE(follower.read(view));
  EXPECT_EQ(view.losses.size(), 10'000u);
  EXPECT_EQ(view.step, 10'000) << "events and lines are in the order of time";
}

TEST(RunFollower, StatesAreThoseOfTheLockAndTheLastEvent) {
  const TempFolder folder;
  const auto root = make_run(folder, "a");
  EXPECT_EQ(state_of(root), RunState::kNew);
  const auto after = [&](const std::string& event) {
    append(root / "events.jsonl", "{\"global_step\":5,\"event\":\"" + event + "\"}\n");
    return state_of(root);
  };
  EXPECT_EQ(after("started"), RunState::kCrashed);
  {
    const FolderLock lock(root);
    EXPECT_EQ(state_of(root), RunState::kRunning);
  }
  EXPECT_EQ(after("saved"), RunState::kCrashed) << "killed after it";
  EXPECT_EQ(after("stopped"), RunState::kStopped);
  EXPECT_EQ(after("resumed"), RunState::kCrashed);
  EXPECT_EQ(after("failed"), RunState::kCrashed);
  EXPECT_EQ(after("finished"), RunState::kFinished);
}

// Whatever comes first: lines of older versions have no time, and a rollback has all of them read again.
TEST(RunFollower, EvaluationsOnOtherDataAreNotTheBest) {
  RunView view;
  const auto evaluate = [&](int64_t step, double loss) {
    view.add_metrics({{"global_step", step}, {"eval/loss", loss}});
  };
  const auto best = [&] { return view.best() ? view.best()->first : 0; };
  evaluate(10, 0.1), evaluate(20, 0.5);
  view.add_event({{"event", "resumed"}, {"global_step", 20}, {"best_after", 19}});
  EXPECT_EQ(best(), 0);
  evaluate(20, 0.6), evaluate(30, 0.7);
  EXPECT_EQ(best(), 20) << "what the resumed run made up for";
  view.forget_metrics();
  evaluate(10, 0.1), evaluate(30, 0.7);
  EXPECT_EQ(best(), 30);
}

// Over a network a lock of another machine is not seen: whether its process lives is not known.
TEST(RunFollower, OneOfAnotherMachineHasNotCrashed) {
  const TempFolder folder;
  const auto root = make_run(folder, "a");
  append(root / "events.jsonl", "{\"time\":5,\"global_step\":5,\"event\":\"started\"}\n");
  write_file(root / FolderLock::kFile, "process 4711 on another-machine");
  const RunView view = summary_of(root);
  EXPECT_EQ(view.state, RunState::kElsewhere);
  std::string text;
  for (const auto& line : view_lines(view, 200, view.news + 120, false)) text += line + "\n";
  EXPECT_NE(text.find("process 4711 on another-machine"), std::string::npos) << text;
  EXPECT_NE(text.find("last written 2m00s ago"), std::string::npos) << text;
  EXPECT_EQ(text.find("crashed"), std::string::npos) << text;
  EXPECT_EQ(view.json(6)["owner"], "process 4711 on another-machine");
  append(root / "events.jsonl", "{\"time\":6,\"global_step\":5,\"event\":\"failed\"}\n");
  EXPECT_EQ(state_of(root), RunState::kCrashed) << "it said so itself";
  { const FolderLock lock(root); }
  write_file(root / "events.jsonl", "{\"time\":5,\"global_step\":5,\"event\":\"started\"}\n");
  EXPECT_EQ(state_of(root), RunState::kCrashed);
}

TEST(RunFollower, AveragedWeightsAreNoTrainingThatStopped) {
  const TempFolder folder;
  const auto root = make_run(folder, "a");
  save_checkpoint(root / "checkpoints", 40, {}, {}, {{"averaged", {20, 40}}});
  EXPECT_EQ(state_of(root), RunState::kAveraged);
  append(root / "events.jsonl", "{\"time\":5,\"global_step\":60,\"event\":\"stopped\"}\n");
  EXPECT_EQ(state_of(root), RunState::kStopped) << "it was trained since";
}

TEST(RunFollower, RunsOfOlderVersionsHaveNoEvents) {
  const TempFolder folder;
  const auto root = make_run(folder, "a");
  append(root / "metrics.jsonl", "{\"global_step\":40,\"training/loss\":3.0}\n");
  EXPECT_EQ(state_of(root), RunState::kStopped);
  append(root / "metrics.jsonl", "{\"global_step\":100,\"training/loss\":2.0}\n");
  fs::create_directories(root / "checkpoints/step-100");
  EXPECT_EQ(state_of(root), RunState::kFinished);
  EXPECT_EQ(summary_of(root).saved_step, 100);
}

TEST(RunFollower, ASummaryHasAllEvaluationsOfALongRun) {
  const TempFolder folder;
  const auto root = make_run(folder, "a");
  std::string lines;
  for (int i = 1; i <= 2000; ++i) {
    lines += "{\"global_step\":" + std::to_string(i) + ",\"training/loss\":1.5}\n";
    if (i == 3) lines += "{\"global_step\":3,\"eval/loss\":0.25}\n";
    if (i == 1000) lines += "{\"global_step\":1000,\"eval/loss\":0.5}\n";
  }
  write_file(root / "metrics.jsonl", lines);
  const RunView view = summary_of(root);
  EXPECT_EQ(view.best(), (std::pair<int64_t, double>{3, 0.25}));
  EXPECT_EQ(view.number("eval/loss"), 0.5);
  EXPECT_EQ(view.step, 2000);
}

TEST(RunList, SurvivesWhatIsNoRunOrABrokenOne) {
  const TempFolder folder;
  const auto good = make_run(folder, "good");
  append(good / "events.jsonl", "{\"time\":4e9,\"global_step\":\"x\",\"event\":7}\n[]\nno json\n\xff\n");
  append(good / "metrics.jsonl",
         "{\"global_step\":\"ten\",\"training/loss\":{}}\n{\"global_step\":7}\nnull\n");
  fs::create_directories(folder / "config_is_a_folder/config.yaml");
  make_run(folder, "metrics_are_a_folder");
  fs::create_directories(folder / "metrics_are_a_folder/metrics.jsonl");
  make_run(folder, "a_pipe");
  for (const char* name : {"metrics.jsonl", "events.jsonl", "log.txt", ".lock"})
    ASSERT_EQ(::mkfifo((folder / "a_pipe" / name).c_str(), 0600), 0);
  make_run(folder, "config_loops");
  fs::remove(folder / "config_loops/config.yaml");
  fs::create_symlink("config.yaml", folder / "config_loops/config.yaml");
  fs::create_symlink("loop", folder / "loop");
  fs::create_symlink(".", folder / "myself");
  fs::create_symlink("nowhere", folder / "dangling");
  fs::create_directory_symlink(".", good / "inside");
  fs::create_directories(folder / "no_run");
  make_run(folder, ".good.replaced");
  write_file(folder / "a_file", "x");

  const auto runs = list_runs(folder.path());
  std::map<std::string, const ListedRun*> by_name;
  for (const auto& run : runs) by_name[run.view.name] = &run;
  EXPECT_EQ(by_name.size(), runs.size());
  for (const char* name : {"good", "metrics_are_a_folder", "a_pipe", "config_is_a_folder", "config_loops"})
    EXPECT_TRUE(by_name.contains(name)) << name;
  EXPECT_EQ(runs.size(), 5u);
  EXPECT_EQ(by_name.at("good")->view.step, 7);
  EXPECT_EQ(by_name.at("good")->problem, "");
  EXPECT_EQ(runs.front().view.name, "good") << "changed last, as it says";
  EXPECT_FALSE(by_name.at("config_loops")->problem.empty());
}

TEST(RunList, SizesAreThoseOfFilesWithoutLinks) {
  const TempFolder folder;
  const auto root = make_run(folder, "a");
  const uint64_t settings = fs::file_size(root / "config.yaml");
  fs::create_directories(root / "checkpoints/step-1");
  write_file(root / "checkpoints/step-1/model.safetensors", std::string(5000, 'x'));
  write_file(folder / "elsewhere", std::string(9000, 'x'));
  fs::create_symlink(folder / "elsewhere", root / "link");
  const auto runs = list_runs(root);
  ASSERT_EQ(runs.size(), 1u) << "a run's own folder";
  EXPECT_EQ(runs[0].bytes, settings + 5000);
}

}  // namespace
}  // namespace tightloop
