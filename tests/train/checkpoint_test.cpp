#include "train/checkpoint.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>

#include "core/files.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;

NamedTensors tensors(double value) { return {{"w", at::full({8, 8}, value)}}; }

TEST(Checkpoint, TheNewestIsLoaded) {
  const TempFolder folder;
  save_checkpoint(folder.path(), 10, tensors(1), tensors(2), 0);
  save_checkpoint(folder.path(), 20, tensors(3), tensors(4), 0);
  const auto newest = load_checkpoint(folder.path());
  EXPECT_EQ(newest.step, 20);
  EXPECT_TRUE(at::equal(newest.weights.tensors.at("w"), tensors(3)[0].second));
  EXPECT_TRUE(at::equal(newest.optimizer.tensors.at("w"), tensors(4)[0].second));
  EXPECT_EQ(load_checkpoint(folder.path(), 10).step, 10);
  EXPECT_TRUE(load_checkpoint(folder.path(), 10, /*weights_only=*/true).optimizer.tensors.empty());
}

TEST(Checkpoint, OnlyTheNewestAreKept) {
  const TempFolder folder;
  for (int64_t step = 1; step <= 5; ++step) save_checkpoint(folder.path(), step, tensors(1), tensors(1), 2);
  EXPECT_EQ(checkpoint_steps(folder.path()), (std::vector<int64_t>{4, 5}));
}

TEST(Checkpoint, ADamagedFileIsNamed) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    for (const bool truncate : {true, false}) {
      const TempFolder folder;
      save_checkpoint(folder.path(), 7, tensors(1), tensors(2), 0);
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
  save_checkpoint(folder.path(), 3, tensors(1), tensors(2), 0);
  const auto message = error_of(ExitCode::kCheckpoint, [&] { load_checkpoint(folder.path(), 4); });
  EXPECT_NE(message.find("there are: 3"), std::string::npos) << message;
}

TEST(Checkpoint, LeftoversOfAnInterruptedSaveDoNotCount) {
  const TempFolder folder;
  save_checkpoint(folder.path(), 3, tensors(1), tensors(2), 0);
  fs::create_directory(folder / "step-00000004.partial");
  write_file_whole(folder / "step-00000004.partial" / "model.safetensors", "half");
  EXPECT_EQ(load_checkpoint(folder.path()).step, 3);
  save_checkpoint(folder.path(), 4, tensors(5), tensors(2), 0);
  EXPECT_EQ(load_checkpoint(folder.path()).step, 4);
}

TEST(Checkpoint, AFullDiskLeavesTheOlderOneLoadable) {
  const TempFolder folder;
  if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "cannot mount a small tmpfs: " << std::strerror(errno);
  }
  save_checkpoint(folder.path(), 1, tensors(1), tensors(2), 0);
  const NamedTensors large{{"w", at::randn({1 << 16})}};
  const auto message =
      error_of(ExitCode::kCheckpoint, [&] { save_checkpoint(folder.path(), 2, large, large, 0); });
  EXPECT_NE(message.find("step 2"), std::string::npos) << message;
  EXPECT_NE(message.find("space"), std::string::npos) << message;
  EXPECT_EQ(load_checkpoint(folder.path()).step, 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1)
      << "nothing half done is left";
  ::umount(folder.path().c_str());
}

}  // namespace
}  // namespace tightloop
