// Files that several processes write at once.
#include "train/run/shared_files.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>

#include <fstream>

#include "dist/several.h"
#include "train/run/checkpoint.h"

namespace tightloop::testing {
namespace {

/// A checkpoint's two files of 100 values each, of which every process has a stretch.
struct SharedParts {
  explicit SharedParts(Processes& processes)
      : slices(slices_of(processes)),
        files(SharedFile(kWeightsFile, slices, {}, processes),
              SharedFile(kOptimizerFile, slices, {}, processes), processes) {}
  static std::vector<StateSlice> slices_of(const Processes& processes) {
    const int64_t size = 100 / processes.world(), begin = processes.rank() * size;
    return {{"a", {100}, begin, at::arange(begin, begin + size, at::kFloat)}};
  }
  std::vector<StateSlice> slices;
  SharedCheckpoint files;
};

void save_together(const fs::path& checkpoints, Processes& processes,
                   const std::function<void(uint64_t)>& wrote = {}) {
  SharedParts shared(processes);
  const auto weights = shared.files.weights().own(shared.slices, {}),
             optimizer = shared.files.optimizer().own(shared.slices, {});
  if (!processes.main()) return shared.files.help(checkpoints, {weights, optimizer, {}});
  const auto write = [&](const fs::path& folder) {
    return shared.files.write(folder, {weights, optimizer, wrote});
  };
  save_checkpoint_files(checkpoints, 3, shared.files.bytes(), write, {});
}

TEST(SharedFiles, AreAsIfOneHadWrittenThem) {
  if (!in_child()) return expect_success(4);
  const fs::path checkpoints = fs::path(std::getenv("TIGHTLOOP_TEST_FOLDER")) / "checkpoints";
  Processes processes;
  if (processes.main()) fs::create_directories(checkpoints);
  processes.barrier();
  save_together(checkpoints, processes);
  processes.barrier();
  const auto weights = load_checkpoint(checkpoints, 3).weights;
  EXPECT_TRUE(at::equal(weights.tensors.at("a"), at::arange(0, 100, at::kFloat)));
}

// As where a disk does not keep what machines write side by side.
TEST(SharedFiles, WhatIsNotThereAsItWasWrittenIsNoCheckpoint) {
  const TempFolder folder;
  Processes alone(std::nullopt);
  bool damaged = false;
  const auto damage = [&](uint64_t) {
    for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
      if (entry.path().filename() != kWeightsFile || entry.file_size() < 100 || damaged) continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(20);
      file.put('#');
      damaged = true;
    }
  };
  const auto message = error_of(ExitCode::kCheckpoint, [&] { save_together(folder.path(), alone, damage); });
  EXPECT_TRUE(damaged);
  EXPECT_CONTAINS(message, "the checkpoint of step 3 was not saved");
  EXPECT_CONTAINS(message, "Several processes have written it");
  EXPECT_TRUE(checkpoint_steps(folder.path()).empty());
  save_together(folder.path(), alone);
  EXPECT_EQ(load_checkpoint(folder.path()).step, 3);
}

}  // namespace
}  // namespace tightloop::testing
