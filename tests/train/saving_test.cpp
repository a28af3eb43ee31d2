#include <ATen/ops/ones.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "core/files.h"
#include "dist/several.h"
#include "support.h"
#include "train/run/checkpoint.h"
#include "train/run/snapshot.h"
#include "train/small_recipe.h"
#include "train/trainer.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::in_child;
using testing::small_recipe;
using testing::start_children;
using testing::TempFolder;

Recipe saving_recipe() {
  auto recipe = small_recipe();
  recipe.train.steps = 8, recipe.train.eval_steps = recipe.train.save_steps = 2;
  recipe.train.keep_best = false;
  return recipe;
}

/// Calls `at(k)` in the k-th evaluation, which is after the k-th save.
TrainResult run_with(Trainer& trainer, const std::function<void(int)>& at) {
  trainer.also_evaluate([&at, k = 0]() mutable -> Task::Evaluation {
    at(++k);
    return {};
  });
  return trainer.run();
}

/// No folder can be made there any more; as on a full disk, saves fail.
void block(const fs::path& checkpoints) {
  fs::rename(checkpoints, checkpoints.string() + ".away");
  write_file_whole(checkpoints, "");
}
void unblock(const fs::path& checkpoints) {
  fs::remove(checkpoints);
  fs::rename(checkpoints.string() + ".away", checkpoints);
}

TEST(Saving, AFailureBeforeTheLastIsNotTheEndOfTheRun) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  Trainer trainer(saving_recipe(), run);
  const auto result = run_with(trainer, [&](int k) {
    if (k == 1) block(run.checkpoints());
    if (k == 2) unblock(run.checkpoints());
  });
  EXPECT_EQ(result.step, 8);
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{2, 6, 8}));
}

/// `time` of each line of a JSONL file that has the key, by its step.
std::map<int64_t, double> times_of(const fs::path& file, const std::string& key,
                                   const std::string& value = "") {
  std::map<int64_t, double> times;
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (!json.contains(key) || (!value.empty() && json[key] != value)) continue;
    times[json["global_step"].get<int64_t>()] = json["time"].get<double>();
  }
  return times;
}

// With a head of many rows a save takes longer than a step.
TEST(Saving, AStepThatWillBeSavedWaitsForTheSaveBeforeIt) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = small_recipe();
  recipe.train.steps = 6, recipe.train.save_steps = 1, recipe.train.eval_steps = 0;
  recipe.train.logging_steps = recipe.train.loss_extract_interval = 1, recipe.log.asynchronous = false;
  recipe.model.vocab_size = 40000, recipe.train.micro_batch = 1;
  Trainer(recipe, run).run();
  const auto steps = times_of(run.metrics(), "training/loss"),
             saves = times_of(run.events(), "event", "saved");
  ASSERT_EQ(steps.size(), 6u);
  ASSERT_EQ(saves.size(), 6u);
  for (int64_t step = 2; step <= 6; ++step) EXPECT_GE(steps.at(step), saves.at(step - 1)) << step;
}

TEST(Saving, AFailureOfTheLastIsAnError) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  Trainer trainer(saving_recipe(), run);
  const auto message = error_of(ExitCode::kCheckpoint, [&] {
    run_with(trainer, [&](int k) {
      if (k == 1) block(run.checkpoints());
    });
  });
  EXPECT_NE(message.find("step 8"), std::string::npos) << message;
  EXPECT_NE(message.find("go on from step 2, the newest that is saved: tightloop train --resume "),
            std::string::npos)
      << message;
}

TEST(Saving, AStepThatWasSavedInVainIsSavedAgainWhereTheRunStopsThere) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = saving_recipe();
  recipe.train.patience = 1, recipe.train.lr = 0;  // the second evaluation is no better
  Trainer trainer(recipe, run);
  const auto result = run_with(trainer, [&](int k) {
    if (k == 1) block(run.checkpoints());
    if (k == 2) unblock(run.checkpoints());
  });
  EXPECT_EQ(result.step, 4);
  EXPECT_TRUE(result.stopped_early);
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{2, 4}));
}

TEST(Saving, OfThoseMadeInPassingTheNewestTwoStay) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = saving_recipe();
  recipe.train.steps = 12, recipe.train.save_steps = 10, recipe.train.eval_steps = 8;
  recipe.train.save_minutes = 1e-9;
  Trainer trainer(recipe, run);
  std::vector<int64_t> then;
  run_with(trainer, [&](int k) {
    if (k == 1) then = checkpoint_steps(run.checkpoints());
  });
  EXPECT_EQ(then, (std::vector<int64_t>{6, 7, 8})) << "6 goes once 8 is known to be good";
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{10, 12}));
}

TEST(Saving, TheBestThatIsNamedOnDiskStays) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = saving_recipe();
  recipe.train.steps = 4, recipe.train.keep_best = true, recipe.train.keep_checkpoints = 1;
  Trainer trainer(recipe, run);
  run_with(trainer, [&](int k) {
    if (k == 2) fs::remove(run.checkpoints() / "step-00000004" / "state.json");
  });
  ASSERT_EQ(trainer.metadata().at("best").at("step"), 4);
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{2, 4}));
}

TEST(Saving, WithKeepBestAStepThatIsNotOnDiskIsNotTheBest) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  auto recipe = saving_recipe();
  recipe.train.keep_best = true, recipe.train.save_steps = 0;
  recipe.train.steps = 9;
  Trainer trainer(recipe, run);
  int evaluations = 0;
  error_of(ExitCode::kCheckpoint, [&] {
    run_with(trainer, [&](int k) {
      evaluations = k;
      if (k == 1) block(run.checkpoints());
    });
  });
  EXPECT_EQ(evaluations, 4) << "2, 4, 6, 8; step 9 is the last save, which fails";
  unblock(run.checkpoints());
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{2}));
  EXPECT_EQ(trainer.metadata().at("best").at("step"), 2);
}

TEST(Saving, AFolderThatIsRemovedIsMadeAgain) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  Trainer trainer(saving_recipe(), run);
  const auto result = run_with(trainer, [&](int k) {
    if (k == 2) fs::remove_all(run.root());
  });
  EXPECT_EQ(result.step, 8);
  EXPECT_EQ(checkpoint_steps(run.checkpoints()), (std::vector<int64_t>{6, 8}));
  EXPECT_TRUE(fs::exists(run.config())) << "it is a run, and can be resumed";
  EXPECT_TRUE(fs::exists(run.tokenizer() / "tokenizer.json"));
}

TEST(Saving, ARunWhoseNameWasTakenIsSavedBesideIt) {
  const TempFolder folder;
  const auto run = RunFolder::create(folder / "run", false);
  Trainer trainer(saving_recipe(), run);
  const auto message = error_of(ExitCode::kCheckpoint, [&] {
    run_with(trainer, [&](int k) {
      if (k != 2) return;
      fs::rename(run.root(), folder / "moved");
      fs::create_directory(run.root());
    });
  });
  EXPECT_NE(message.find("taken its name"), std::string::npos) << message;
  EXPECT_TRUE(fs::is_empty(run.root()));
  EXPECT_EQ(checkpoint_steps(folder / "moved" / "checkpoints"), (std::vector<int64_t>{2, 4}));
  const auto beside = folder / ("run-" + std::to_string(::getpid()));
  EXPECT_NE(message.find(beside.string()), std::string::npos) << message;
  const auto saved = RunFolder::open(beside);
  EXPECT_EQ(load_checkpoint(saved.checkpoints()).step, 8) << "the last step; those before only if in place";
  EXPECT_EQ(read_file(saved.config()), read_file(folder / "moved" / "config.yaml"));
  EXPECT_TRUE(fs::exists(saved.tokenizer() / "tokenizer.json"));
}

/// The main process of two. Its first line of metrics goes into a pipe that is full, so that it waits there,
/// after the losses were read and before the save; meanwhile the other one is killed, and known to be dead.
void save_after_a_death(const fs::path& folder) {
  auto recipe = small_recipe();
  recipe.train.steps = 4, recipe.train.loss_extract_interval = 1;
  recipe.log.asynchronous = false, recipe.log.flush_steps = 1;
  Processes processes(rendezvous_from_environment(), {.beat = std::chrono::milliseconds(50)});
  const RunFolder run =
      processes.main() ? RunFolder::create(folder / "run", false) : RunFolder(folder / "run");
  if (!processes.main()) {
    write_file_whole(folder / "victim", std::to_string(::getpid()));
    Trainer(recipe, run, {.processes = &processes}).run();
    return;
  }
  ASSERT_EQ(::mkfifo(run.metrics().c_str(), 0600), 0);
  const int pipe = ::open(run.metrics().c_str(), O_RDWR | O_NONBLOCK);
  const std::string filler(1024, '\n');
  while (::write(pipe, filler.data(), filler.size()) > 0) continue;
  std::thread reader([&] {
    while (!fs::exists(folder / "victim")) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::this_thread::sleep_for(std::chrono::seconds(5));  // until the main process waits
    ::kill(std::stoi(read_file(folder / "victim")), SIGKILL);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    std::string drained(1 << 20, '\0');
    while (::read(pipe, drained.data(), drained.size()) > 0) continue;
  });
  Trainer trainer(recipe, run, {.processes = &processes});
  const auto message = error_of(ExitCode::kFailure, [&] { trainer.run(); });
  reader.join();
  EXPECT_NE(message.find("rank 1 of 2"), std::string::npos) << message;
  EXPECT_TRUE(checkpoint_steps(run.checkpoints()).empty());
}

TEST(SeveralProcesses, NothingIsSavedAfterTheDeathOfAPeer) {
  if (in_child()) return save_after_a_death(std::getenv("TIGHTLOOP_TEST_FOLDER"));
  const TempFolder folder;
  auto children = start_children(folder, 2);
  const auto code = children[0].wait(std::chrono::seconds(60));
  EXPECT_TRUE(code == 0) << code.value_or(-1) << ":\n" << children[0].output();
}

/// What a run of 40 steps that is saved at each second one comes to.
std::vector<int64_t> saved_in_background(const fs::path& root) {
  auto recipe = small_recipe();
  recipe.train.steps = 40, recipe.train.save_steps = 2, recipe.train.eval_steps = 0;
  recipe.train.keep_checkpoints = 0;
  const auto run = RunFolder::create(root, false);
  Trainer(recipe, run).run();
  return checkpoint_steps(run.checkpoints());
}

TEST(Saving, InTheBackgroundHoldsWhatTheStepLeft) {
  const TempFolder folder;
  const auto steps = saved_in_background(folder / "run");
  ASSERT_EQ(steps.size(), 20u);
  // A run that ends there, and so waits for its save, has the same weights and moments.
  for (const int64_t step : {2, 14, 38}) {
    auto recipe = small_recipe();
    recipe.train.steps = 40, recipe.train.eval_steps = 0, recipe.train.stop_at = step;
    const auto run = RunFolder::create(folder / fmt::format("to-{}", step), false);
    Trainer(recipe, run).run();
    const auto name = fmt::format("step-{:08}", step);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_EQ(read_file(folder / "run" / "checkpoints" / name / file),
                read_file(run.checkpoints() / name / file))
          << step << " " << file;
  }
}

TEST(Saving, IsToldInTheEvents) {
  const TempFolder folder;
  saved_in_background(folder / "run");
  std::vector<std::string> events;
  std::istringstream lines(read_file(folder / "run" / "events.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    EXPECT_GT(event.at("time").get<double>(), 1.7e9);
    events.push_back(event.at("event"));
    if (events.back() == "saved") {
      EXPECT_GT(event.at("bytes").get<double>(), 1000);
      EXPECT_LE(event.at("held_up").get<double>(), event.at("seconds").get<double>());
    }
  }
  ASSERT_EQ(events.size(), 22u);
  EXPECT_EQ(events.front(), "started");
  EXPECT_EQ(events.back(), "finished");
}

TEST(Saving, WhatTrainingWaitsForIsToldAsThat) {
  const TempFolder folder;
  auto recipe = saving_recipe();
  recipe.train.eval_steps = 0, recipe.train.debug_syncs = true;  // no save while steps are made
  Trainer(recipe, RunFolder::create(folder / "run", false)).run();
  std::istringstream lines(read_file(folder / "run" / "events.jsonl"));
  int saved = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event["event"] != "saved") continue;
    ++saved;
    EXPECT_EQ(event["held_up"], event["seconds"]);
  }
  EXPECT_EQ(saved, 4);
}

TEST(Saving, WhatTrainingDoesNotChangeIsNotCopied) {
  const NamedTensors frozen{{"base", at::ones({4})}};
  auto copy = Snapshot::take({{{"w", at::ones({4})}}, {}}, cpu_device());
  ASSERT_TRUE(copy);
  copy->share(0, frozen);
  ASSERT_EQ((*copy)[0].size(), 2u);
  EXPECT_EQ((*copy)[0][1].second.const_data_ptr(), frozen[0].second.const_data_ptr());
}

TEST(Saving, AnAllocationThatFailsIsNoError) {
  constexpr int64_t kFloats = int64_t{1} << 28;
  if (cpu_device().free_memory() < int64_t{3} << 30) GTEST_SKIP() << "less than 3 GiB are free";
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE)) + (256 << 20);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &tight), 0);
  std::optional<Snapshot> copy;
  EXPECT_NO_THROW(copy = Snapshot::take({{{"w", at::ones({1}).expand({kFloats})}}}, cpu_device()));
  ::setrlimit(RLIMIT_AS, &before);
  EXPECT_FALSE(copy);
}

TEST(Saving, WhereThereIsNoMemoryForACopyTrainingWaits) {
  // Snapshot::take() itself: a device that has none left, and a host that has.
  const NamedTensors tensors{{"w", at::ones({4})}};
  auto copy = Snapshot::take({tensors}, cpu_device());
  ASSERT_TRUE(copy);
  tensors[0].second.zero_();
  EXPECT_EQ((*copy)[0][0].second.sum().item<double>(), 4) << "a copy";
  const Snapshot same = Snapshot::of({tensors});
  EXPECT_EQ(same[0][0].second.const_data_ptr(), tensors[0].second.const_data_ptr()) << "no copy";
}

}  // namespace
}  // namespace tightloop
