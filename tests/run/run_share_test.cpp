#include "train/run/run_share.h"

#include "core/files.h"
#include "dist/several.h"
#include "train/run/checkpoint.h"

namespace tightloop::testing {
namespace {

/// A folder of this process's own to be in, or one of all.
fs::path go_to(const std::string& name) {
  const fs::path folder = fs::path(std::getenv("TIGHTLOOP_TEST_FOLDER")) / name;
  fs::create_directories(folder / "tmp");
  fs::current_path(folder);
  ::setenv("TMPDIR", (folder / "tmp").c_str(), 1);
  return folder;
}

RunFolder claimed(Processes& processes) {
  RunFolder run("runs/a");
  if (!processes.main()) return run;
  run = RunFolder::create("runs/a", false);
  write_file(run.config(), "settings");
  write_file(run.tokenizer() / "tokenizer.json", "words");
  fs::create_directories(run.index() / "index2-1");
  write_file(run.index() / "index2-1" / "kept", "records");
  save_checkpoint(run.checkpoints(), 7, {}, {}, {{"about", "it"}});
  return run;
}

TEST(RunShare, WhoDoesNotSeeTheRunGetsCopies) {
  if (!in_child()) return expect_success(3);
  // The first two are in one folder, as on one machine.
  const std::string rank = std::getenv("RANK");
  const fs::path here = go_to(rank == "2" ? "elsewhere" : "shared");
  Processes processes;
  {
    RunShare share(claimed(processes), processes);
    EXPECT_FALSE(share.everywhere());
    const RunFolder& run = share.run();
    const bool sees = rank != "2";
    EXPECT_EQ(run.root() == "runs/a", sees) << run.root();
    EXPECT_EQ(path_exists(run.config()), sees);
    share.send_settings();
    EXPECT_EQ(read_file(run.config()), "settings");
    EXPECT_EQ(read_file(run.tokenizer() / "tokenizer.json"), "words");
    EXPECT_EQ(path_exists(run.index()), sees);
    share.send_prepared();
    EXPECT_EQ(read_file(run.index() / "index2-1" / "kept"), "records");
    share.send_checkpoint(7);
    EXPECT_EQ(load_checkpoint(run.checkpoints(), 7).metadata.at("about"), "it");
    share.drop_checkpoints();
    EXPECT_EQ(checkpoint_steps(run.checkpoints()).size(), sees ? 1u : 0u);
    EXPECT_EQ(fs::is_empty(here / "tmp"), sees);
    processes.barrier();
  }
  EXPECT_TRUE(fs::is_empty(here / "tmp"));
  EXPECT_EQ(fs::exists(here / "runs"), rank != "2");
  if (processes.main()) {
    for (const auto& entry : folder_entries("runs/a"))
      EXPECT_EQ(entry.string().find("partial"), std::string::npos) << entry << " is left of finding out";
  }
}

TEST(RunShare, WhereAllSeeItNothingIsCopied) {
  if (!in_child()) return expect_success(2);
  const fs::path here = go_to("shared");
  Processes processes;
  RunShare share(claimed(processes), processes);
  EXPECT_TRUE(share.everywhere());
  EXPECT_EQ(share.run().root(), "runs/a");
  share.send_settings();
  share.send_checkpoint(7);
  share.drop_checkpoints();
  EXPECT_EQ(checkpoint_steps("runs/a/checkpoints").size(), 1u);
  EXPECT_TRUE(fs::is_empty(here / "tmp"));
}

// As on a network file system, which shows other machines a new folder later.
TEST(RunShare, ACheckpointThatIsNotSeenYetIsWaitedFor) {
  if (!in_child()) return expect_success(2);
  go_to("shared");
  Processes processes;
  RunShare share(claimed(processes), processes);
  const fs::path folder = fs::absolute(checkpoint_folder(share.run().checkpoints(), 7));
  std::thread late;
  if (processes.main()) {
    fs::rename(folder, "hidden");
    late = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      fs::rename("hidden", folder);
    });
  }
  share.send_checkpoint(7);
  if (!processes.main()) {
    EXPECT_EQ(load_checkpoint(share.run().checkpoints(), 7).metadata.at("about"), "it");
  }
  if (late.joinable()) late.join();
}

// A run of the same name that is somebody else's is not this one.
TEST(RunShare, AnotherRunOfTheNameIsNotTaken) {
  if (!in_child()) return expect_success(2);
  go_to(std::getenv("RANK"));
  fs::create_directories("runs/a");
  if (std::string(std::getenv("RANK")) == "1") write_file("runs/a/config.yaml", "of another");
  Processes processes;
  RunShare share(claimed(processes), processes);
  EXPECT_FALSE(share.everywhere());
  share.send_settings();
  EXPECT_EQ(read_file(share.run().config()), "settings");
  if (!processes.main()) {
    EXPECT_EQ(read_file("runs/a/config.yaml"), "of another");
  }
}

TEST(RunShare, AloneItIsTheRun) {
  const TempFolder folder;
  Processes processes(std::nullopt);
  RunShare share(RunFolder(folder / "a"), processes);
  EXPECT_TRUE(share.everywhere());
  EXPECT_EQ(share.run().root(), folder / "a");
}

}  // namespace
}  // namespace tightloop::testing
