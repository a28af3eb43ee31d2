#include "data/prefetcher.h"

#include <chrono>
#include <stdexcept>

#include "support.h"

namespace tightloop {
namespace {

TEST(Prefetcher, HandsOutInOrderForAnyThreads) {
  for (const int threads : {0, 1, 2, 8}) {
    std::vector<int64_t> slots(5);
    Prefetcher prefetcher(threads, 5, 3, 200, [&](int64_t item, int slot) { slots[slot] = item; });
    for (int64_t item = 3; item < 200; ++item) {
      const int slot = prefetcher.next();
      ASSERT_GE(slot, 0);
      ASSERT_EQ(slots[slot], item);
    }
    EXPECT_EQ(prefetcher.next(), -1);
    EXPECT_EQ(prefetcher.next(), -1);
  }
}

TEST(Prefetcher, NeverTouchesTheSlotInHand) {
  std::vector<int64_t> slots(3, -1);
  Prefetcher prefetcher(4, 3, 0, -1, [&](int64_t item, int slot) { slots[slot] = item; });
  for (int64_t item = 0; item < 300; ++item) {
    const int slot = prefetcher.next();
    for (int look = 0; look < 20; ++look) {
      ASSERT_EQ(slots[slot], item);
      if (item % 50 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

TEST(Prefetcher, StopsAtAnyMoment) {
  for (int taken = 0; taken < 20; ++taken) {
    Prefetcher prefetcher(3, 4, 0, -1, [](int64_t, int) {});
    for (int i = 0; i < taken; ++i) prefetcher.next();
  }
}

TEST(Prefetcher, AnErrorComesInItsPlaceAndStays) {
  for (const int threads : {0, 2}) {
    Prefetcher prefetcher(threads, 4, 0, -1, [](int64_t item, int) {
      if (item == 5) throw std::runtime_error("five");
    });
    for (int i = 0; i < 5; ++i) EXPECT_GE(prefetcher.next(), 0);
    EXPECT_THROW(prefetcher.next(), std::runtime_error);
    EXPECT_THROW(prefetcher.next(), std::runtime_error);
  }
}

TEST(Prefetcher, MeasuresWaitingOnBothSides) {
  using std::chrono::milliseconds;
  Prefetcher slow(1, 2, 0, -1, [](int64_t, int) { std::this_thread::sleep_for(milliseconds(5)); });
  for (int i = 0; i < 10; ++i) slow.next();
  EXPECT_GT(slow.wait_seconds(), 0.02);
  Prefetcher fast(1, 2, 0, -1, [](int64_t, int) {});
  for (int i = 0; i < 10; ++i) {
    fast.next();
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_GT(fast.idle_seconds(), 0.02);
  EXPECT_LT(fast.wait_seconds(), slow.wait_seconds());
}

TEST(Prefetcher, CountsWhatIsReady) {
  using std::chrono::milliseconds;
  Prefetcher full(2, 5, 0, -1, [](int64_t, int) {});
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(milliseconds(100));
    full.next();
  }
  EXPECT_EQ(full.depth().taken, 3);
  EXPECT_EQ(full.depth().ready, 5 + 4 + 4) << "all slots; later all but the one in hand";
  Prefetcher empty(1, 5, 0, -1, [](int64_t, int) { std::this_thread::sleep_for(milliseconds(20)); });
  for (int i = 0; i < 5; ++i) empty.next();
  EXPECT_EQ(empty.depth().taken, 5);
  EXPECT_LE(empty.depth().ready, 1);
  Prefetcher none(0, 5, 0, -1, [](int64_t, int) {});
  none.next();
  EXPECT_EQ(none.depth().taken, 0) << "there is no queue";
}

}  // namespace
}  // namespace tightloop
