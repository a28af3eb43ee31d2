#include "dist/several.h"
#include "train/guard/straggler_watch.h"

namespace tightloop::testing {
namespace {

using std::chrono::minutes, std::chrono::seconds;
using Clock = StragglerJudge::Clock;

std::vector<int> ranks(const std::vector<Straggler>& found) {
  std::vector<int> ranks;
  for (const auto& one : found) ranks.push_back(one.rank);
  return ranks;
}

TEST(StragglerJudge, NamesOneThatIsSlowForAWhile) {
  StragglerJudge judge;
  const Clock::time_point start{};
  const std::vector<double> paces{0.1, 0.12, 0.3, 0.09};
  EXPECT_TRUE(judge.judge(paces, start).empty());
  EXPECT_TRUE(judge.judge(paces, start + StragglerJudge::kWhile - seconds(1)).empty());
  const auto found = judge.judge(paces, start + StragglerJudge::kWhile);
  ASSERT_EQ(ranks(found), std::vector<int>{2});
  EXPECT_EQ(found[0].seconds, 0.3);
  EXPECT_EQ(found[0].usual, 0.1) << "the median of the others";
}

TEST(StragglerJudge, SaysItOnceInAFewMinutes) {
  StragglerJudge judge;
  const Clock::time_point start{};
  const std::vector<double> paces{0.1, 0.1, 0.3};
  judge.judge(paces, start);
  EXPECT_EQ(judge.judge(paces, start + seconds(10)).size(), 1u);
  EXPECT_TRUE(judge.judge(paces, start + seconds(20)).empty());
  EXPECT_TRUE(judge.judge(paces, start + seconds(9) + StragglerJudge::kApart).empty());
  EXPECT_EQ(judge.judge(paces, start + seconds(10) + StragglerJudge::kApart).size(), 1u);
}

TEST(StragglerJudge, ASlowMomentIsNothing) {
  StragglerJudge judge;
  Clock::time_point now{};
  for (int i = 0; i < 20; ++i, now += seconds(2)) {
    const std::vector<double> paces{0.1, 0.1, i % 2 ? 0.3 : 0.1};
    EXPECT_TRUE(judge.judge(paces, now).empty()) << i;
  }
}

TEST(StragglerJudge, NeitherIsAllBeingSlowNorOneThatHasNotToldYet) {
  StragglerJudge judge;
  Clock::time_point now{};
  for (const std::vector<double>& paces :
       {std::vector<double>{0.5, 0.4, 0.6}, {0.1, 0, 0}, {0.1, 0, 0.19}, {3, 0, 0}}) {
    for (int i = 0; i < 5; ++i, now += minutes(1)) EXPECT_TRUE(judge.judge(paces, now).empty());
  }
}

TEST(StragglerJudge, OfTwoTheSlowOneIsNamed) {
  StragglerJudge judge;
  judge.judge({0.3, 0.1}, Clock::time_point{});
  EXPECT_EQ(ranks(judge.judge({0.3, 0.1}, Clock::time_point{} + seconds(10))), std::vector<int>{0});
}

// Waiting for the others, in collectives and between steps, is no work of one's own.
TEST(StragglerWatch, NamesTheProcessWithItsHostInTheMainOne) {
  if (!in_child()) return expect_success(4);
  Processes processes(rendezvous_from_environment(), {.beat = std::chrono::milliseconds(20)});
  std::vector<std::string> named;
  StragglerWatch watch(processes, [&](const std::string& text) { named.push_back(text); });
  StepSums sums;
  sums.values.assign(LossBuffer::kColumns, 0.0);
  const bool slow = processes.rank() == 2;
  sums.values[LossBuffer::kIdle] = slow ? 0.1 : 7, sums.values[LossBuffer::kCommunication] = slow ? 0.1 : 9;
  sums.values[LossBuffer::kForward] = slow ? 0.2 : 0.1,
  sums.values[LossBuffer::kBackward] = slow ? 0.1 : 0.05;
  auto now = Clock::now();
  double waited = 0;
  for (sums.step = 1; sums.step <= 10; ++sums.step) {
    now += seconds(2), waited += slow ? 0.2 : 0.05;
    watch.step(sums, waited, now);
    const double own = processes.rank() == 2 ? 0.5 : 0.2;
    const auto end = Clock::now() + seconds(30);  // until it is told
    while (std::abs(processes.paces()[static_cast<size_t>(processes.rank())] - own) > 1e-4 &&
           Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    processes.barrier();
    processes.barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until it is read
  }
  if (!processes.main()) {
    EXPECT_TRUE(named.empty());
    return;
  }
  ASSERT_EQ(named.size(), 1u);
  EXPECT_CONTAINS(named[0],
                  "rank 2 of 4 (host " + host_name() + ") takes 0.5 s for its own work on a step, 2.5 times");
}

}  // namespace
}  // namespace tightloop::testing
