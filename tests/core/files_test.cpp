#include "core/files.h"

#include <sys/stat.h>

#include <fstream>

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
  EXPECT_FALSE(fs::exists(folder / "f.partial"));
}

TEST(Files, AFailedWriteLeavesTheOldFile) {
  const TempFolder folder;
  write_file_whole(folder / "f", "old");
  fs::create_directory(folder / "f.partial");  // in the way of the new one
  const auto message = error_of(ExitCode::kCheckpoint, [&] { write_file_whole(folder / "f", "new"); });
  EXPECT_NE(message.find("f.partial"), std::string::npos) << message;
  EXPECT_EQ(read_file(folder / "f"), "old");
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
