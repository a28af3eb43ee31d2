// Processes that arrive late, one too many, or with other numbers than the rest.
#include "dist/processes.h"
#include "dist/several.h"

namespace tightloop::testing {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;

fs::path arrival_folder() { return std::getenv("TIGHTLOOP_TEST_FOLDER"); }

template <class Condition>
bool happens(const Condition& condition, seconds limit = seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

Environment environment_of(const TempFolder& folder, int port, int rank, int world) {
  return {{"RANK", std::to_string(rank)},        {"LOCAL_RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world)}, {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)}, {"TIGHTLOOP_TEST_FOLDER", folder.path().string()}};
}

TEST(Arriving, OneTooManyEndsAloneAndTheOthersGoOn) {
  if (in_child()) {
    if (std::getenv("TIGHTLOOP_TEST_LATE")) {
      const auto message = error_of(ExitCode::kUsage, [] { Processes late; });
      EXPECT_CONTAINS(message, "2 processes have met at 127.0.0.1:");
      EXPECT_CONTAINS(message, "this one, with RANK " + std::string(std::getenv("RANK")));
      return;
    }
    Processes processes;
    write_file_whole(arrival_folder() / ("ready-" + std::to_string(processes.rank())), "");
    EXPECT_TRUE(happens([] { return fs::exists(arrival_folder() / "go on"); }));
    EXPECT_EQ(processes.sum(int64_t{1}), 2);
    return;
  }
  const TempFolder folder;
  const int port = free_port();
  auto children = start_children(folder, 2, {{"MASTER_PORT", std::to_string(port)}});
  ASSERT_TRUE(happens([&] { return fs::exists(folder / "ready-0") && fs::exists(folder / "ready-1"); }));
  for (const auto& [rank, world] : {std::pair{1, 2}, {2, 3}, {1, 4}}) {
    auto environment = environment_of(folder, port, rank, world);
    environment["TIGHTLOOP_TEST_LATE"] = "1";
    Child late(folder / "late", environment);
    EXPECT_TRUE(late.wait(seconds(60)) == 0) << rank << " of " << world << ":\n" << late.output();
  }
  write_file_whole(folder / "go on", "");
  for (auto& child : children) EXPECT_TRUE(child.wait(seconds(60)) == 0) << child.output();
}

TEST(Arriving, WhoWaitsSaysForWhom) {
  if (in_child()) {
    Processes processes;
    EXPECT_EQ(processes.sum(int64_t{1}), 2);
    return;
  }
  const TempFolder folder;
  const int port = free_port();
  Child first(folder / "first", environment_of(folder, port, 0, 2));
  const std::string said =
      "Rank 0 of 2 waits for the others at 127.0.0.1:" + std::to_string(port) + " (MASTER_ADDR, MASTER_PORT)";
  EXPECT_TRUE(happens([&] {
    return fs::exists(folder / "first") && first.output().find(said) != std::string::npos;
  })) << first.output();
  Child second(folder / "second", environment_of(folder, port, 1, 2));
  EXPECT_TRUE(first.wait(seconds(60)) == 0) << first.output();
  EXPECT_TRUE(second.wait(seconds(60)) == 0) << second.output();
  EXPECT_EQ(second.output().find("waits for the others"), std::string::npos) << second.output();
}

TEST(Arriving, AnotherWorldSizeIsTheErrorOfAll) {
  if (in_child()) {
    const auto message = error_of(ExitCode::kUsage, [] { Processes processes; });
    EXPECT_CONTAINS(message, "WORLD_SIZE");
    EXPECT_CONTAINS(message, "another process has");
    return;
  }
  const TempFolder folder;
  const int port = free_port();
  Child first(folder / "first", environment_of(folder, port, 0, 2)),
      second(folder / "second", environment_of(folder, port, 1, 3));
  EXPECT_TRUE(first.wait(seconds(60)) == 0) << first.output();
  EXPECT_TRUE(second.wait(seconds(60)) == 0) << second.output();
}

TEST(Arriving, TwoOfOneRankAreTheErrorOfAll) {
  if (in_child()) {
    EXPECT_CONTAINS(error_of(ExitCode::kUsage, [] { Processes processes; }), "two processes have RANK 1");
    return;
  }
  const TempFolder folder;
  const int port = free_port();
  std::vector<Child> children;
  for (const int rank : {0, 1, 1})
    children.emplace_back(folder / fmt::format("{}-{}", rank, children.size()),
                          environment_of(folder, port, rank, 3));
  for (auto& child : children) EXPECT_TRUE(child.wait(seconds(60)) == 0) << child.output();
}

TEST(Arriving, AnUnknownAddressIsAUsageErrorAtOnce) {
  for (const int rank : {0, 1}) {
    const Rendezvous rendezvous{.rank = rank, .world = 2, .address = "no such machine", .port = 29500};
    const auto message = error_of(ExitCode::kUsage, [&] { Processes processes(rendezvous); });
    EXPECT_CONTAINS(message, "MASTER_ADDR is 'no such machine', and no machine of that name is known here");
  }
}

}  // namespace
}  // namespace tightloop::testing
