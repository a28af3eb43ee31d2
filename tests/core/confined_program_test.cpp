#include "core/io/confined_program.h"

#include "core/files.h"
#include "support.h"

namespace tightloop {
namespace {

constexpr const char* kPython = "/usr/bin/python3";

class ConfinedProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_file(kPython)) GTEST_SKIP() << "there is no " << kPython;
  }
};

TEST_F(ConfinedProgram, SucceedsOrFails) {
  EXPECT_EQ(run_confined(kPython, "assert 1 + 1 == 2\n"), ProgramEnd::kSucceeded);
  EXPECT_EQ(run_confined(kPython, "assert 1 + 1 == 3\n"), ProgramEnd::kFailed);
  EXPECT_EQ(run_confined(kPython, "this is no Python\n"), ProgramEnd::kFailed);
}

TEST_F(ConfinedProgram, IsEndedWhenItTakesTooLong) {
  ConfinedLimits limits;
  limits.time = std::chrono::milliseconds(300);
  EXPECT_EQ(run_confined(kPython, "while True: pass\n", limits), ProgramEnd::kTimedOut);
  EXPECT_EQ(run_confined(kPython, "import time; time.sleep(60)\n", limits), ProgramEnd::kTimedOut);
}

TEST_F(ConfinedProgram, HasBoundsOfMemoryAndFiles) {
  EXPECT_EQ(run_confined(kPython, "x = 'a' * (1 << 30)\n"), ProgramEnd::kFailed);
  EXPECT_EQ(run_confined(kPython, "open('f', 'w').write('a' * (2 << 20))\n"), ProgramEnd::kFailed);
  EXPECT_EQ(run_confined(kPython, "open('f', 'w').write('a')\n"), ProgramEnd::kSucceeded);
}

TEST_F(ConfinedProgram, SeesNeitherOurEnvironmentNorOurFilesNorInput) {
  ::setenv("TIGHTLOOP_SECRET", "1", 1);
  EXPECT_EQ(run_confined(kPython,
                         "import os, sys\n"
                         "assert 'TIGHTLOOP_SECRET' not in os.environ and 'HOME' not in os.environ\n"
                         "assert sys.stdin.read() == ''\n"
                         "assert sorted(os.listdir('.')) == ['program.py']\n"
                         "assert all(int(f) <= 4 for f in os.listdir('/proc/self/fd'))\n"),
            ProgramEnd::kSucceeded);
  ::unsetenv("TIGHTLOOP_SECRET");
}

TEST(ConfinedProgramErrors, AnInterpreterThatIsNotThereIsAUsageError) {
  testing::error_of(ExitCode::kUsage, [] { run_confined("/nowhere/python", ""); });
}

}  // namespace
}  // namespace tightloop
