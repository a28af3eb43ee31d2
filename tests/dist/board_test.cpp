// What processes post for each other, also where the store does not answer.
#include "dist/several.h"

#include "dist/processes.h"

namespace tightloop::testing {
namespace {

TEST(Board, APostIsReadByAllUntilItIsRemoved) {
  if (!in_child()) return expect_success(3);
  Processes processes;
  if (processes.rank() == 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    processes.post("a", "one");
    processes.post("b", "");
  }
  EXPECT_EQ(processes.posted("a"), "one");
  EXPECT_EQ(processes.posted("b"), "");
  processes.barrier();
  if (processes.rank() == 1) {
    processes.remove_post("a");
    processes.post("a", "two");
  }
  processes.barrier();
  EXPECT_EQ(processes.posted("a"), "two");
  processes.barrier();
}

TEST(Board, ThreadsMayWaitForPostsOfEachOther) {
  if (!in_child()) return expect_success(2);
  Processes processes;
  const std::string own = std::to_string(processes.rank()), other = std::to_string(1 - processes.rank());
  std::thread beside([&] {
    for (int i = 0; i < 20; ++i) EXPECT_EQ(processes.posted(fmt::format("{} {}", other, i)), other);
  });
  for (int i = 0; i < 20; ++i) processes.post(fmt::format("{} {}", own, i), own);
  beside.join();
  processes.barrier();
}

// A stopped process that serves the store keeps its connections, and answers nobody.
TEST(Board, APostIsNotWaitedForWhereTheStoreIsStopped) {
  if (!in_child()) {
    EXPECT_CONTAINS(last_words(0, SIGSTOP, "waiting"),
                    "last words: rank 0 of 2 (host " + host_name() + "), which serves the processes' store,");
    return;
  }
  Processes processes(rendezvous_from_environment(), {.beat = std::chrono::milliseconds(50)});
  processes.barrier();
  write_file_whole(
      fs::path(std::getenv("TIGHTLOOP_TEST_FOLDER")) / ("ready-" + std::string(std::getenv("RANK"))), "");
  if (processes.main()) std::this_thread::sleep_for(std::chrono::minutes(1));
  const auto message = error_of(ExitCode::kFailure, [&] { processes.posted("never"); });
  error_of(ExitCode::kFailure, [&] { processes.post("late", "word"); });
  std::fprintf(stderr, "last words: %s\n", message.c_str());
}

}  // namespace
}  // namespace tightloop::testing
