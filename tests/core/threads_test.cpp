#include "core/threads.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support.h"

namespace tightloop {
namespace {

TEST(ParallelFor, VisitsEveryIndexOnce) {
  for (const int threads : {1, 2, 7})
    for (const size_t count : {0u, 1u, 5u, 1000u})
      for (const size_t grain : {1u, 3u, 5000u}) {
        std::vector<std::atomic<int>> visits(count);
        parallel_for(count, threads, grain, [&](size_t begin, size_t end, int worker) {
          EXPECT_GE(worker, 0);
          EXPECT_LT(worker, threads);
          EXPECT_LE(end - begin, grain);
          for (size_t i = begin; i < end; ++i) ++visits[i];
        });
        for (const auto& visit : visits) EXPECT_EQ(visit, 1);
      }
}

TEST(ParallelFor, RethrowsAndStops) {
  std::atomic<int> calls{0};
  EXPECT_THROW(parallel_for(100000, 4, 1,
                            [&](size_t begin, size_t, int) {
                              ++calls;
                              if (begin == 10) throw std::runtime_error("ten");
                            }),
               std::runtime_error);
  EXPECT_LT(calls, 100000);
}

TEST(BoundedQueue, KeepsOrderAndBlocksWhenFull) {
  BoundedQueue<int> queue(2);
  std::thread producer([&] {
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(queue.push(i));
    queue.close();
  });
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(queue.pop(), i);
  EXPECT_FALSE(queue.pop());
  EXPECT_FALSE(queue.push(1));
  producer.join();
}

TEST(BoundedQueue, CloseWakesThoseWhoWait) {
  BoundedQueue<int> queue(1);
  EXPECT_TRUE(queue.push(1));
  std::thread blocked([&] { EXPECT_FALSE(queue.push(2)); });
  queue.close();
  blocked.join();
  EXPECT_EQ(queue.pop(), 1);
  EXPECT_EQ(queue.pop(), std::nullopt);
}

}  // namespace
}  // namespace tightloop
