#include "core/files.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>

#include "core/folder_lock.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;
using testing::TempFolder;

TEST(Files, WhatIsWrittenIsReadBack) {
  const TempFolder folder;
  const std::string bytes("a\0b\r\n\xff", 6);
  write_file_whole(folder / "f", bytes);
  EXPECT_EQ(read_file(folder / "f"), bytes);
  EXPECT_EQ(MappedFile(folder / "f").text(), bytes);
  EXPECT_EQ(folder_entries(folder.path()).size(), 1u);
}

/// No file may grow while this lives, as on a disk that is full.
class NoSpace {
 public:
  NoSpace() {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoSpace() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, old_);
  }

 private:
  void (*old_)(int) = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before_{};
};

TEST(Files, AFailedWriteLeavesTheOldFile) {
  const TempFolder folder;
  write_file_whole(folder / "f", "old");
  {
    const NoSpace full;
    const auto message = error_of(ExitCode::kCheckpoint, [&] { write_file_whole(folder / "f", "new"); });
    EXPECT_NE(message.find("'" + (folder / "f").string() + "'"), std::string::npos) << message;
  }
  EXPECT_EQ(read_file(folder / "f"), "old");
  EXPECT_EQ(folder_entries(folder.path()).size(), 1u) << "nothing half done is left";
}

TEST(Files, SeveralProcessesMayWriteOneFile) {
  const TempFolder folder;
  std::vector<pid_t> writers;
  for (int i = 0; i < 4; ++i) {
    writers.push_back(::fork());
    if (writers.back() != 0) continue;
    try {
      for (int n = 0; n < 200; ++n) write_file_whole(folder / "f", "the same");
    } catch (const Error&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  for (const pid_t writer : writers) {
    int status = 0;
    ::waitpid(writer, &status, 0);
    EXPECT_EQ(status, 0) << "a writer got in the way of another";
  }
  EXPECT_EQ(read_file(folder / "f"), "the same");
  EXPECT_EQ(folder_entries(folder.path()).size(), 1u);
}

TEST(Files, WhatAKilledWriterLeftIsRemovedByTheNext) {
  const TempFolder folder;
  fs::path left;
  const pid_t writer = ::fork();
  if (writer == 0) {
    FileWriter(partial_path(folder / "f")).write("ha");
    FileWriter(partial_path(folder / "other")).write("ha");
    ::_exit(0);
  }
  ::waitpid(writer, nullptr, 0);
  const fs::path mine = partial_path(folder / "f");
  FileWriter(mine).write("under way");
  ASSERT_EQ(folder_entries(folder.path()).size(), 2u) << "that of the other file, and mine";
  write_file_whole(folder / "f", "whole");
  write_file_whole(folder / "other", "whole");
  EXPECT_EQ(folder_entries(folder.path()), (std::vector<fs::path>{folder / "f", mine, folder / "other"}));
}

TEST(Files, WhatAWriterOfAnotherMachineLeftIsRemovedAfterAWeek) {
  const TempFolder folder;
  const fs::path old = folder / "f.partial-00000000-1-0", recent = folder / "f.partial-00000001-1-0",
                 mine = folder / "f.partial-of-mine";
  for (const auto& path : {old, recent, mine}) {
    FileWriter(path).write("ha");
    if (path != recent)
      fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(24 * 8));
  }
  const fs::path under_way = partial_path(folder / "f");
  FileWriter(under_way).write("ha");
  fs::last_write_time(under_way, fs::file_time_type::clock::now() - std::chrono::hours(24 * 8));
  write_file_whole(folder / "f", "whole");
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(recent));
  EXPECT_TRUE(fs::exists(mine)) << "not a name of this program's";
  EXPECT_TRUE(fs::exists(under_way)) << "its process is alive";
}

TEST(Files, WhatCannotBeFollowedIsASentence) {
  const TempFolder folder;
  fs::create_symlink("loop", folder / "loop");
  write_file_whole(folder / "file", "");
  for (const fs::path& path : {folder / "loop", folder / std::string(300, 'x')}) {
    for (const auto& call :
         {std::function<void()>([&] { path_exists(path); }), std::function<void()>([&] { is_file(path); }),
          std::function<void()>([&] { is_folder(path); }),
          std::function<void()>([&] { folder_entries(path); }),
          std::function<void()>([&] { file_bytes(path); }), std::function<void()>([&] { file_time(path); }),
          std::function<void()>([&] { expand_glob(path.string()); }),
          std::function<void()>([&] { read_file(path); })}) {
      const auto message = error_of(ExitCode::kData, call);
      EXPECT_TRUE(message.starts_with("cannot read '" + path.string())) << message;
    }
    error_of(ExitCode::kUsage, [&] { make_folder(path / "a"); });
    error_of(ExitCode::kCheckpoint, [&] { write_file_whole(path / "a", ""); });
  }
  error_of(ExitCode::kData, [&] { folder_entries(folder / "file"); });
  EXPECT_FALSE(path_exists(folder / "file" / "in a file"));
  EXPECT_TRUE(folder_entries(folder / "nothing").empty());
  error_of(ExitCode::kCheckpoint, [&] { move_path(folder / "nothing", folder / "a"); });
  error_of(ExitCode::kData, [&] { copy_path(folder / "nothing", folder / "a"); });
}

TEST(Files, AMissingFolderForTemporaryFilesIsASentence) {
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", "/no/such/folder", 1);
  const auto message = error_of(ExitCode::kUsage, [] { temporary_folder(); });
  EXPECT_NE(message.find("TMPDIR"), std::string::npos) << message;
  before ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
}

TEST(FolderLock, EndsWithItsProcess) {
  const TempFolder folder;
  {
    FolderLock first(folder.path());
    ASSERT_TRUE(first.held());
    const FolderLock second(folder.path());
    EXPECT_FALSE(second.held());
    EXPECT_NE(second.owner().find(std::to_string(::getpid())), std::string::npos) << second.owner();
  }
  EXPECT_TRUE(folder_entries(folder.path()).empty()) << "nothing is left of it";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t owner = ::fork();
  if (owner == 0) {
    const FolderLock lock(folder.path());
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  FolderLock waiting(folder.path());
  EXPECT_FALSE(waiting.held());
  ::kill(owner, SIGKILL);
  ::waitpid(owner, nullptr, 0);
  waiting.wait();
  EXPECT_TRUE(waiting.held());
  ::close(ready[0]), ::close(ready[1]);
}

TEST(Files, AFullDiskIsAnErrorThatNamesTheFile) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  FileWriter writer("/dev/full");
  const auto message = error_of(ExitCode::kCheckpoint, [&] { writer.write("x"); });
  EXPECT_NE(message.find("/dev/full"), std::string::npos) << message;
  EXPECT_NE(message.find("space"), std::string::npos) << message;
}

TEST(Files, MissingFilesAreNamed) {
  for (const auto& read : {std::function<void()>([] { read_file("no/such"); }),
                           std::function<void()>([] { MappedFile map("no/such"); }),
                           std::function<void()>([] { expand_glob("no/such"); }),
                           std::function<void()>([] { expand_glob("no/such*"); })}) {
    EXPECT_NE(error_of(ExitCode::kData, read).find("no/such"), std::string::npos);
  }
}

TEST(Files, AnEmptyFileMapsToNothing) {
  const TempFolder folder;
  write_file_whole(folder / "empty", "");
  EXPECT_TRUE(MappedFile(folder / "empty").bytes().empty());
}

TEST(Files, GlobsGiveFilesInOrder) {
  const TempFolder folder;
  for (const char* name : {"b.txt", "a.txt", "c.md"}) write_file_whole(folder / name, name);
  fs::create_directory(folder / "d.txt");
  const auto found = expand_glob((folder.path() / "*.txt").string());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].filename(), "a.txt");
  EXPECT_EQ(found[1].filename(), "b.txt");
}

}  // namespace
}  // namespace tightloop
