#include "train/run/run_folder.h"

#include <ATen/ops/full.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/files.h"
#include "core/folder_lock.h"
#include "support.h"
#include "train/run/checkpoint.h"
#include "train/unprivileged.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;
using testing::unprivileged;

void save(const RunFolder& run, int64_t step) {
  const NamedTensors tensors{{"w", at::full({4}, 1.0)}};
  save_checkpoint(run.checkpoints(), step, tensors, tensors);
  run.saved();
}

/// A run with a checkpoint of step 1.
void make_run(const fs::path& root) {
  const auto run = RunFolder::create(root, false);
  write_file_whole(run.config(), "train:\n");
  save(run, 1);
}

/// What is in a folder, hidden names too.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : folder_entries(folder)) names.push_back(entry.filename());
  return names;
}

/// Does it in another process, which then dies without any order.
template <class Body>
void in_a_process_that_is_killed(Body&& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
}

TEST(RunFolder, IsNeverOverwrittenByAccident) {
  const TempFolder folder;
  make_run(folder / "run");
  const auto message = error_of(ExitCode::kUsage, [&] { RunFolder::create(folder / "run", false); });
  EXPECT_NE(message.find("--overwrite"), std::string::npos) << message;
  write_file_whole(folder / "run" / "note", "mine");
  save(RunFolder::create(folder / "run", true), 2);
  EXPECT_FALSE(fs::exists(folder / "run" / "note"));
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"run"});
  fs::create_directory(folder / "photos");
  write_file_whole(folder / "photos" / "cat", "meow");
  error_of(ExitCode::kUsage, [&] { RunFolder::create(folder / "photos", true); });
  EXPECT_TRUE(fs::exists(folder / "photos" / "cat"));
  error_of(ExitCode::kUsage, [&] { RunFolder::open(folder / "nothing"); });
  error_of(ExitCode::kUsage, [&] { RunFolder::resume(folder / "nothing"); });
  EXPECT_FALSE(fs::exists(folder / "nothing"));
}

TEST(RunFolder, ARunThatIsReplacedComesBackWhenTheNewOneEndsWithoutACheckpoint) {
  const TempFolder folder;
  make_run(folder / "run");
  {
    const auto next = RunFolder::create(folder / "run/", true);
    EXPECT_TRUE(checkpoint_steps(next.checkpoints()).empty());
    write_file_whole(next.metrics(), "{}\n");
    const auto message = error_of(ExitCode::kUsage, [&] { RunFolder::open(folder / "run"); });
    EXPECT_NE(message.find(".run.replaced"), std::string::npos) << message;
    EXPECT_EQ(load_checkpoint(folder / ".run.replaced" / "checkpoints").step, 1);
  }
  EXPECT_EQ(load_checkpoint(RunFolder::open(folder / "run").checkpoints()).step, 1);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"run"});
  EXPECT_EQ(names_in(folder / "run"), (std::vector<std::string>{"checkpoints", "config.yaml", "tokenizer"}));
}

TEST(RunFolder, AKillBeforeTheFirstCheckpointBringsTheReplacedRunBack) {
  for (const bool made : {true, false}) {
    for (const auto& next :
         {std::function<void(fs::path)>([](const fs::path& p) { RunFolder::open(p); }),
          std::function<void(fs::path)>([](const fs::path& p) { RunFolder::resume(p); }),
          std::function<void(fs::path)>(
              [](const fs::path& p) { error_of(ExitCode::kUsage, [&] { RunFolder::create(p, false); }); }),
          std::function<void(fs::path)>([](const fs::path& p) { runs_in(p.parent_path()); })}) {
      const TempFolder folder;
      make_run(folder / "run");
      in_a_process_that_is_killed([&] {
        const auto run = RunFolder::create(folder / "run", true);
        write_file_whole(run.metrics(), "{}\n");
        ::_exit(0);
      });
      if (!made) fs::remove_all(folder / "run");  // killed before the new folder was there
      next(folder / "run");
      EXPECT_EQ(load_checkpoint(folder / "run" / "checkpoints").step, 1);
      EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"run"});
    }
  }
}

TEST(RunFolder, AKillAfterTheFirstCheckpointLeavesTheNewRun) {
  const TempFolder folder;
  make_run(folder / "run");
  in_a_process_that_is_killed([&] {
    const auto run = RunFolder::create(folder / "run", true);
    write_file_whole(run.config(), "train:\n");
    const NamedTensors tensors{{"w", at::full({4}, 1.0)}};
    save_checkpoint(run.checkpoints(), 5, tensors, tensors);
    ::_exit(0);
  });
  EXPECT_EQ(load_checkpoint(RunFolder::open(folder / "run").checkpoints()).step, 5);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"run"});
}

TEST(RunFolder, OneThatNeverCameToACheckpointStartsAgain) {
  const TempFolder folder;
  for (const bool configured : {false, true}) {
    const fs::path root = folder / (configured ? "run" : "other");
    in_a_process_that_is_killed([&] {
      const auto run = RunFolder::create(root, false);
      write_file_whole(run.tokenizer() / "tokenizer.json", "{");
      write_file_whole(run.root() / "config.yaml.partial-00000000-1-0", "tr");
      write_file_whole(run.csv(), "global_step,time\n");
      for (const auto& sink : {run.tensorboard(), run.wandb()}) {
        fs::create_directory(sink);
        write_file_whole(sink / "some file", "of a sink");
      }
      write_file_whole(run.log(), "2026-01-31 10:20:30.456 info hello\n");
      if (configured) write_file_whole(run.config(), "train:\n");
      ::_exit(0);
    });
    const auto message = error_of(ExitCode::kCheckpoint, [&] { RunFolder::resume(root); });
    EXPECT_NE(message.find("no checkpoint"), std::string::npos) << message;
    const auto run = RunFolder::create(root, /*overwrite=*/configured);
    EXPECT_TRUE(folder_entries(run.tokenizer()).empty());
  }
  // Metrics may be worth something.
  write_file_whole(folder / "run" / "metrics.jsonl", "{}\n");
  error_of(ExitCode::kUsage, [&] { RunFolder::create(folder / "run", false); });
  error_of(ExitCode::kCheckpoint, [&] { RunFolder::resume(folder / "run"); });
  save(RunFolder::create(folder / "run", true), 1);
  EXPECT_FALSE(fs::exists(folder / "run" / "metrics.jsonl"));
}

TEST(RunFolder, OneProcessAtATimeWritesToIt) {
  const TempFolder folder;
  make_run(folder / "run");
  {
    const auto run = RunFolder::resume(folder / "run");
    for (const auto& second : {std::function<void()>([&] { RunFolder::resume(folder / "run"); }),
                               std::function<void()>([&] { RunFolder::create(folder / "run", true); })}) {
      const auto message = error_of(ExitCode::kUsage, second);
      EXPECT_NE(message.find(std::to_string(::getpid())), std::string::npos) << message;
    }
    const auto message = error_of(ExitCode::kUsage, [&] { RunFolder::resume(folder / "run"); });
    EXPECT_EQ(message.find("--run.name"), std::string::npos) << "of no use with --resume: " << message;
    RunFolder::open(folder / "run");  // reading goes on
  }
  in_a_process_that_is_killed([&] {
    const auto run = RunFolder::resume(folder / "run");
    ::_exit(0);
  });
  RunFolder::resume(folder / "run");
}

/// Folders of the user's own that have some of the names that are in runs too, each with what is in it.
std::vector<std::vector<std::string>> folders_of_users() {
  return {{"config.yaml", "data.txt", "notes.md"},
          {"config.yaml"},
          {"config.yaml", "checkpoints/epoch-1.pt", "tokenizer/tokenizer.json"},
          {"config.yaml", "checkpoints/step-00000001.partial/w", "data.txt"},
          {"log.txt", "tokenizer/tokenizer.json"},
          {"tokenizer/tokenizer.json"},
          {"tokenizer/tokenizer.json", "tokenizer_target/tokenizer.json"},
          {".lock", "tokenizer/tokenizer.json"}};
}

TEST(RunFolder, AFolderOfTheUsersIsNeverCleared) {
  for (const auto& names : folders_of_users()) {
    for (const bool overwrite : {false, true}) {
      const TempFolder folder;
      for (const auto& name : names) {
        fs::create_directories((folder / "exp" / name).parent_path());
        write_file_whole(folder / "exp" / name, "train:\n  steps: 3\n");
      }
      const auto message =
          error_of(ExitCode::kUsage, [&] { save(RunFolder::create(folder / "exp", overwrite), 1); });
      EXPECT_NE(message.find("is not a run"), std::string::npos) << message;
      for (const auto& name : names)
        EXPECT_TRUE(name == ".lock" || fs::exists(folder / "exp" / name)) << name << " of " << names[0];
    }
  }
}

TEST(RunFolder, ANewRunThatCannotBeginRemovesOnlyWhatItWrote) {
  const TempFolder folder;
  {
    const auto run = RunFolder::create(folder / "run", false);
    write_file_whole(run.tokenizer() / "tokenizer.json", "{}");
    run.discard();
  }
  EXPECT_FALSE(fs::exists(folder / "run"));
  {
    const auto run = RunFolder::create(folder / "run", false);
    write_file_whole(run.root() / "notes.md", "mine");
    run.discard();
  }
  EXPECT_EQ(names_in(folder / "run"), std::vector<std::string>{"notes.md"});
}

/// A run that was put aside by a process that is gone; nothing is at its name.
void make_replaced(const TempFolder& folder) {
  make_run(folder / "run");
  fs::rename(folder / "run", folder / ".run.replaced");
}

TEST(RunFolder, WhatIsNotARunIsLeftWhereAReplacedRunWouldComeBack) {
  const TempFolder folder;
  make_replaced(folder);
  fs::create_directory(folder / "run");
  for (const std::string name : {"notes.md", "tokenizer"}) {
    write_file_whole(folder / "run" / name, "mine");
    const auto message = error_of(ExitCode::kUsage, [&] { RunFolder::open(folder / "run"); });
    EXPECT_NE(message.find(".run.replaced"), std::string::npos) << message;
    EXPECT_EQ(names_in(folder / "run"), std::vector<std::string>{name});
    EXPECT_EQ(load_checkpoint(folder / ".run.replaced" / "checkpoints").step, 1);
    fs::remove(folder / "run" / name);
  }
  EXPECT_EQ(load_checkpoint(RunFolder::open(folder / "run").checkpoints()).step, 1);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"run"});
}

TEST(RunFolder, AFolderThatIsOnlyNamedLikeAReplacedRunIsLeft) {
  const TempFolder folder;
  make_run(folder / "run");
  fs::create_directory(folder / ".run.replaced");
  write_file_whole(folder / ".run.replaced" / "notes.md", "mine");
  EXPECT_EQ(load_checkpoint(RunFolder::open(folder / "run").checkpoints()).step, 1);
  EXPECT_EQ(names_in(folder / ".run.replaced"), std::vector<std::string>{"notes.md"});
}

TEST(RunFolder, AReplacedRunDoesNotComeBackOverOneThatIsWrittenTo) {
  const TempFolder folder;
  make_replaced(folder);
  {
    const FolderLock writer(folder / "run");
    RunFolder::recover(folder / "run");
    EXPECT_EQ(names_in(folder / "run"), std::vector<std::string>{FolderLock::kFile});
    EXPECT_EQ(load_checkpoint(folder / ".run.replaced" / "checkpoints").step, 1);
  }
  RunFolder::recover(folder / "run");
  EXPECT_EQ(load_checkpoint(folder / "run" / "checkpoints").step, 1);
}

TEST(RunFolder, OneCanBeReadByWhoCannotWriteThere) {
  const TempFolder folder;
  make_replaced(folder);
  make_run(folder / "other");
  fs::rename(folder / "other", folder / "run");
  unprivileged(folder.path(), [&] {
    fs::permissions(folder / ".run.replaced", fs::perms(0555));
    fs::permissions(folder.path(), fs::perms(0555));
    EXPECT_EQ(load_checkpoint(RunFolder::open(folder / "run").checkpoints()).step, 1);
    EXPECT_EQ(runs_in(folder.path()).size(), 1u);
    fs::permissions(folder.path(), fs::perms(0755));
    fs::permissions(folder / ".run.replaced", fs::perms(0755));
  });
}

TEST(RunFolder, SettingsThatAreMissingComeBackFromTheNewestCheckpoint) {
  const TempFolder folder;
  make_run(folder / "run");
  fs::remove(folder / "run" / "config.yaml");
  for (const auto& use : {std::function<void()>([&] { RunFolder::open(folder / "run"); }),
                          std::function<void()>([&] { RunFolder::resume(folder / "run"); })}) {
    const auto message = error_of(ExitCode::kUsage, use);
    EXPECT_NE(message.find("config.yaml is missing"), std::string::npos) << message;
    EXPECT_EQ(message.find("start it again"), std::string::npos) << message;
  }
  const NamedTensors tensors{{"w", at::full({4}, 1.0)}};
  save_checkpoint(folder / "run" / "checkpoints", 2, tensors, tensors,
                  {{"settings", "train:\n  steps: 7\n"}});
  const auto message = error_of(ExitCode::kUsage, [&] { RunFolder::open(folder / "run"); });
  EXPECT_NE(message.find("--resume"), std::string::npos) << message;
  RunFolder::resume(folder / "run");
  EXPECT_TRUE(read_file(folder / "run" / "config.yaml").starts_with("train:\n  steps: 7\n# xxh3 "));
  RunFolder::open(folder / "run");
}

}  // namespace
}  // namespace tightloop
