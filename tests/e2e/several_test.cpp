// Processes that train together end together: with the same sentence and the same exit code.
#include <unistd.h>

#include "e2e/program.h"

namespace tightloop::testing {
namespace {

/// Two processes; `own` are words of rank 1 alone. "codes A B" are their exit codes, both outputs are before.
Outcome two_processes(const fs::path& folder, const std::string& own) {
  const std::string port = std::to_string(some_port());
  const std::string train = "tightloop train " + tiny() + "--train.steps 10 --run.name a ";
  return run(
      folder,
      "export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + "; RANK=1 LOCAL_RANK=1 " + train +
          own + " >one 2>&1 & RANK=0 LOCAL_RANK=0 " + train +
          " >zero 2>&1; zero=$?; wait $!; echo codes $zero $?; grep -h '^tightloop: ' zero | tail -1; "
          "[ \"$(grep '^tightloop: ' zero)\" = \"$(grep '^tightloop: ' one)\" ] && echo the same words");
}

TEST(SeveralProcesses, WithAnotherSettingAreRefusedByAll) {
  const TempFolder folder;
  const auto outcome = two_processes(folder.path(), "--train.lr 0.0123");
  EXPECT_TRUE(contains(outcome.output, "codes 2 2")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "rank 1 of 2 (host ")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "has train.lr 0.0123, rank 0 of 2 (host ")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "the same words")) << outcome.output;
  EXPECT_FALSE(path_exists(folder / "runs")) << "nothing was begun";
}

TEST(SeveralProcesses, OneThatIsCalledWronglyEndsTheOthers) {
  const TempFolder folder;
  const auto outcome = two_processes(folder.path(), "--train.stepz 3");
  EXPECT_TRUE(contains(outcome.output, "codes 2 2")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "train.stepz")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "the same words")) << outcome.output;
}

TEST(SeveralProcesses, OneThatGoesOnWhileAnotherBeginsIsRefusedByAll) {
  const TempFolder folder;
  ASSERT_EQ(run(folder.path(), "tightloop train " + tiny() + "--train.steps 2 --run.name a").exit_code, 0);
  const std::string env =
      "export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(some_port());
  const auto outcome =
      run(folder.path(),
          env +
              "; RANK=1 LOCAL_RANK=1 tightloop train --resume runs/a >one 2>&1 & RANK=0 LOCAL_RANK=0 "
              "tightloop train " +
              tiny() +
              "--train.steps 4 --run.name b >zero 2>&1; zero=$?; wait $!; echo codes $zero $?; cat zero one");
  EXPECT_TRUE(contains(outcome.output, "codes 2 2")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "has to do --resume, rank 0 of 2 (host ")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "has a new run")) << outcome.output;
  EXPECT_FALSE(path_exists(folder / "runs/b")) << "nothing was begun";
}

TEST(SeveralProcesses, OneForWhichNothingIsLeftToDoIsRefusedByAll) {
  const TempFolder folder;
  ASSERT_EQ(run(folder.path(), "tightloop train " + tiny() + "--train.steps 2 --run.name a").exit_code, 0);
  const std::string env =
      "export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(some_port());
  const auto outcome = run(folder.path(), env +
                                              "; RANK=1 LOCAL_RANK=1 tightloop train --resume runs/a "
                                              "--train.steps 4 >one 2>&1 & RANK=0 LOCAL_RANK=0 tightloop "
                                              "train --resume runs/a >zero 2>&1; zero=$?; wait $!; echo "
                                              "codes $zero $?; cat zero one");
  EXPECT_TRUE(contains(outcome.output, "codes 2 2")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "has train.steps 4, rank 0 of 2 (host ")) << outcome.output;
}

TEST(SeveralProcesses, OneWithoutItsDataEndsTheOthers) {
  const TempFolder folder;
  const auto outcome = two_processes(folder.path(), "--data.source text --data.train no-such-file.txt");
  EXPECT_TRUE(contains(outcome.output, "codes 3 3")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "no-such-file")) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "the same words")) << outcome.output;
}

TEST(SeveralProcesses, WhereAndWithHowManyThreadsMayDiffer) {
  const TempFolder folder;
  const auto outcome = two_processes(folder.path(), "--train.threads 1 --data.num_workers 1");
  EXPECT_TRUE(contains(outcome.output, "codes 0 0")) << outcome.output;
}

}  // namespace
}  // namespace tightloop::testing
