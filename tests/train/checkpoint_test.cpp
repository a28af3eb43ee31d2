#include "train/run/checkpoint.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "core/files.h"
#include "support.h"
#include "train/unprivileged.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;
using testing::unprivileged;

NamedTensors tensors(double value) { return {{"w", at::full({8, 8}, value)}}; }

void save_and_keep(const fs::path& folder, int64_t step, const NamedTensors& weights,
                   const NamedTensors& optimizer, int64_t keep) {
  save_checkpoint(folder, step, weights, optimizer);
  remove_old_checkpoints(folder, {.newest = step, .keep = keep});
}

TEST(Checkpoint, WhichOnesStay) {
  const std::vector<int64_t> steps{10, 20, 30, 40, 50, 60};
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(checkpoints_to_remove(steps, {.newest = 60}), Steps{}) << "keep 0 keeps all";
  EXPECT_EQ(checkpoints_to_remove(steps, {.newest = 60, .keep = 2}), (Steps{10, 20, 30, 40}));
  EXPECT_EQ(checkpoints_to_remove(steps, {.newest = 60, .keep = 2, .best = 20}), (Steps{10, 30, 40}));
  EXPECT_EQ(checkpoints_to_remove(steps, {.newest = 60, .keep = 1, .every = 30}), (Steps{10, 20, 40, 50}));
  EXPECT_EQ(checkpoints_to_remove(steps, {.newest = 50, .keep = 2}), (Steps{10, 20, 30}))
      << "60 could not be read: it neither goes nor counts";
  EXPECT_EQ(checkpoints_to_remove(steps, {.newest = 60, .keep = 4, .replaced = {50}}), (Steps{10, 50}));
  EXPECT_EQ(checkpoints_to_remove(steps, {.newest = 60, .replaced = {30, 50}}), (Steps{30, 50}));
  EXPECT_EQ(checkpoints_to_remove(steps, {.newest = 60, .best = 50, .replaced = {50}}), Steps{});
  EXPECT_EQ(checkpoints_to_remove(steps, {.newest = 60, .named_best = 50, .replaced = {50}}), Steps{});
  EXPECT_EQ(checkpoints_to_remove(steps, {.newest = 60, .every = 25, .replaced = {50}}), Steps{});
  EXPECT_EQ(checkpoints_to_remove(steps, {.newest = 60, .replaced = {60}}), Steps{});
  EXPECT_EQ(checkpoints_to_remove(steps, {.newest = 60, .keep = 4, .beside = 50}), Steps{10});
}

TEST(Checkpoint, ADiskThatDoesNotSayHowLargeItIsMayHaveRoom) {
  // /proc says 0 bytes in all; nothing can be made there, but not for that.
  const auto message =
      error_of(ExitCode::kCheckpoint, [] { save_checkpoint("/proc", 1, tensors(1), tensors(2)); });
  EXPECT_EQ(message.find("too little space"), std::string::npos) << message;
}

// What is read may go at any moment, since a training keeps the newest alone.
TEST(Checkpoint, ALoadBesideATrainingFindsANewerOne) {
  const TempFolder folder;
  save_checkpoint(folder.path(), 1, tensors(1), tensors(1));
  std::atomic<bool> done = false;
  std::thread training([&] {
    for (int64_t step = 2; !done; ++step) save_and_keep(folder.path(), step, tensors(step), tensors(step), 1);
  });
  std::string problem;
  for (int k = 0; k < 300 && problem.empty(); ++k) try {
      const auto loaded = load_checkpoint(folder.path());
      if (!at::equal(loaded.weights.tensors.at("w"), tensors(static_cast<double>(loaded.step))[0].second))
        problem = "other weights";
    } catch (const std::exception& error) {
      problem = error.what();
    }
  done = true;
  training.join();
  EXPECT_EQ(problem, "");
}

TEST(Checkpoint, TheNewestIsLoaded) {
  const TempFolder folder;
  save_checkpoint(folder.path(), 10, tensors(1), tensors(2));
  save_checkpoint(folder.path(), 20, tensors(3), tensors(4));
  const auto newest = load_checkpoint(folder.path());
  EXPECT_EQ(newest.step, 20);
  EXPECT_TRUE(at::equal(newest.weights.tensors.at("w"), tensors(3)[0].second));
  EXPECT_TRUE(at::equal(newest.optimizer.tensors.at("w"), tensors(4)[0].second));
  EXPECT_EQ(load_checkpoint(folder.path(), 10).step, 10);
  EXPECT_TRUE(load_checkpoint(folder.path(), 10, /*weights_only=*/true).optimizer.tensors.empty());
}

TEST(Checkpoint, OnlyTheNewestAreKept) {
  const TempFolder folder;
  for (int64_t step = 1; step <= 5; ++step) save_and_keep(folder.path(), step, tensors(1), tensors(1), 2);
  EXPECT_EQ(checkpoint_steps(folder.path()), (std::vector<int64_t>{4, 5}));
}

TEST(Checkpoint, ADamagedFileIsNamed) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    for (const bool truncate : {true, false}) {
      const TempFolder folder;
      save_checkpoint(folder.path(), 7, tensors(1), tensors(2));
      const auto path = folder / "step-00000007" / file;
      auto bytes = read_file(path);
      if (truncate) bytes.resize(bytes.size() / 2);
      if (!truncate) bytes[bytes.size() - 3] ^= 1;
      write_file_whole(path, bytes);
      const auto message = error_of(ExitCode::kCheckpoint, [&] { load_checkpoint(folder.path()); });
      EXPECT_NE(message.find(file), std::string::npos) << message;
    }
  }
}

TEST(Checkpoint, AMissingOneIsExplained) {
  const TempFolder folder;
  error_of(ExitCode::kCheckpoint, [&] { load_checkpoint(folder.path()); });
  save_checkpoint(folder.path(), 3, tensors(1), tensors(2));
  const auto message = error_of(ExitCode::kCheckpoint, [&] { load_checkpoint(folder.path(), 4); });
  EXPECT_NE(message.find("there are: 3"), std::string::npos) << message;
}

TEST(Checkpoint, LeftoversOfAnInterruptedSaveDoNotCount) {
  const TempFolder folder;
  save_checkpoint(folder.path(), 3, tensors(1), tensors(2));
  fs::create_directory(folder / "step-00000004.partial");
  write_file_whole(folder / "step-00000004.partial" / "model.safetensors", "half");
  EXPECT_EQ(load_checkpoint(folder.path()).step, 3);
  save_checkpoint(folder.path(), 4, tensors(5), tensors(2));
  EXPECT_EQ(load_checkpoint(folder.path()).step, 4);
}

TEST(Checkpoint, WhatKilledSavesLeftIsClearedUpByTheNextSave) {
  const TempFolder folder;
  save_checkpoint(folder.path(), 3, tensors(1), tensors(2));
  fs::create_directory(folder / "step-00000004.partial");
  fs::copy(folder / "step-00000003", folder / "step-00000003.replaced");
  fs::copy(folder / "step-00000003", folder / "step-00000002.replaced");  // was to be replaced, and was not
  write_file_whole(folder / "best.json", "{}");
  save_checkpoint(folder.path(), 5, tensors(5), tensors(2));
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"best.json", "step-00000002", "step-00000003", "step-00000005"}));
}

TEST(Checkpoint, WhatCannotBeRemovedDoesNotKeepLaterOnesFromBeingSaved) {
  const TempFolder folder;
  for (int64_t step = 1; step <= 3; ++step) save_checkpoint(folder.path(), step, tensors(1), tensors(2));
  fs::create_directory(folder / "step-00000004.partial");
  write_file_whole(folder / "step-00000004.partial" / "model.safetensors", "half");
  unprivileged(folder.path(), [&] {
    for (const char* fixed : {"step-00000001", "step-00000004.partial"})
      fs::permissions(folder / fixed, fs::perms(0555));
    save_and_keep(folder.path(), 4, tensors(4), tensors(2), 1);
    EXPECT_EQ(load_checkpoint(folder.path()).step, 4);
    EXPECT_EQ(checkpoint_steps(folder.path()), (std::vector<int64_t>{4})) << "step 2 and 3 could go";
    save_and_keep(folder.path(), 5, tensors(5), tensors(2), 1);
    EXPECT_EQ(checkpoint_steps(folder.path()), (std::vector<int64_t>{5}));
    for (const auto& entry : fs::directory_iterator(folder.path()))
      fs::permissions(entry.path(), fs::perms(0755));
    save_and_keep(folder.path(), 6, tensors(6), tensors(2), 1);
    EXPECT_EQ(folder_entries(folder.path()), (std::vector<fs::path>{folder / "step-00000006"}));
  });
}

TEST(Checkpoint, OneThatWasPutAsideIsFoundWhenTheNewOneNeverCame) {
  const TempFolder folder;
  save_checkpoint(folder.path(), 3, tensors(1), tensors(2));
  fs::rename(folder / "step-00000003", folder / "step-00000003.replaced");
  fs::create_directory(folder / "step-00000003.partial");
  EXPECT_EQ(load_checkpoint(folder.path()).step, 3);
  EXPECT_EQ(load_checkpoint(folder.path(), 3).step, 3);
}

TEST(Checkpoint, AKillWhileAStepIsSavedAgainLosesNothing) {
  const TempFolder folder;
  const NamedTensors one = tensors(1), two = tensors(2);
  save_and_keep(folder.path(), 7, one, two, 1);
  for (int trial = 0; trial < 12; ++trial) {
    // Much to remove: so that there is time to be killed meanwhile.
    for (int i = 0; i < 500; ++i) std::ofstream(folder / "step-00000007" / std::to_string(i));
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) save_and_keep(folder.path(), 7, one, two, 1);
    }
    ::usleep(2000 * (trial + 1));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_NO_THROW(load_checkpoint(folder.path())) << "trial " << trial;
  }
}

TEST(Checkpoint, TheNewestThatIsWholeIsTaken) {
  const TempFolder folder;
  for (int64_t step = 1; step <= 4; ++step) save_checkpoint(folder.path(), step, tensors(1), tensors(2));
  fs::resize_file(folder / "step-00000004" / "optimizer.safetensors", 100);
  fs::remove(folder / "step-00000003" / "state.json");
  EXPECT_EQ(load_checkpoint(folder.path()).step, 2);
  EXPECT_EQ(load_checkpoint(folder.path(), {}, /*weights_only=*/true).step, 4) << "its weights are whole";
  error_of(ExitCode::kCheckpoint, [&] { load_checkpoint(folder.path(), 4); });
}

TEST(Checkpoint, NoCheckpointThatIsWholeIsAnError) {
  const TempFolder folder;
  for (int64_t step = 1; step <= 2; ++step) {
    save_checkpoint(folder.path(), step, tensors(1), tensors(2));
    fs::remove(folder / ("step-0000000" + std::to_string(step)) / "model.safetensors");
  }
  error_of(ExitCode::kCheckpoint, [&] { load_checkpoint(folder.path()); });
}

TEST(Checkpoint, ALaterDamagedOneDoesNotPushOutTheOneJustSaved) {
  const TempFolder folder;
  save_and_keep(folder.path(), 5, tensors(1), tensors(2), 1);
  fs::copy(folder / "step-00000005", folder / "step-00000010");  // says that it is of step 5
  save_and_keep(folder.path(), 7, tensors(1), tensors(2), 1);
  EXPECT_EQ(load_checkpoint(folder.path()).step, 7);
  EXPECT_EQ(checkpoint_steps(folder.path()), (std::vector<int64_t>{7, 10}));
}

TEST(Checkpoint, NoFlippedByteOfItsStateIsAccepted) {
  const TempFolder folder;
  const nlohmann::json metadata{{"best", {{"step", 3}, {"loss", 1.25}}}, {"stage", "sft"}};
  save_checkpoint(folder.path(), 7, tensors(1), tensors(2), metadata);
  const auto path = folder / "step-00000007" / "state.json";
  const auto bytes = read_file(path);
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto damaged = bytes;
    damaged[i] ^= 1;
    std::ofstream(path) << damaged;
    try {
      EXPECT_EQ(load_checkpoint(folder.path()).metadata, metadata) << damaged.substr(0, i + 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kCheckpoint) << error.what();
    }
  }
}

TEST(Checkpoint, OneOfTheFormatBeforeIsRead) {
  const TempFolder folder;
  save_checkpoint(folder.path(), 7, tensors(1), tensors(2), {{"stage", "sft"}});
  const auto path = folder / "step-00000007" / "state.json";
  auto state = nlohmann::json::parse(read_file(path));
  state["format"] = 1;
  state.erase("xxh3");
  write_file_whole(path, state.dump());
  EXPECT_EQ(load_checkpoint(folder.path()).metadata.at("stage"), "sft");
}

TEST(Checkpoint, AFullDiskLeavesTheOlderOneLoadable) {
  const TempFolder folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "cannot mount a small tmpfs: " << std::strerror(errno);
  }
  save_checkpoint(folder.path(), 1, tensors(1), tensors(2));
  const NamedTensors large{{"w", at::randn({1 << 16})}};
  const auto message =
      error_of(ExitCode::kCheckpoint, [&] { save_checkpoint(folder.path(), 2, large, large); });
  EXPECT_NE(message.find("step 2"), std::string::npos) << message;
  EXPECT_NE(message.find("space"), std::string::npos) << message;
  EXPECT_EQ(load_checkpoint(folder.path()).step, 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1)
      << "nothing half done is left";
  ::umount(folder.path().c_str());
}

}  // namespace
}  // namespace tightloop
