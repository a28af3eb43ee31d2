#include "core/worker.h"

#include <atomic>
#include <vector>

#include "core/folder_lock.h"
#include "support.h"

namespace tightloop {
namespace {

TEST(Worker, DoesAllInTheOrderInWhichItWasAsked) {
  std::vector<int> done;  // of the worker's thread; wait() and the end make it ours
  Worker worker;
  EXPECT_TRUE(worker.idle());
  for (int round = 1; round <= 50; ++round) {
    for (int i = 0; i < 20; ++i) worker.add([&done] { done.push_back(static_cast<int>(done.size())); });
    worker.wait();
    EXPECT_TRUE(worker.idle());
    ASSERT_EQ(done.size(), 20u * round);
  }
  for (size_t i = 0; i < done.size(); ++i) ASSERT_EQ(done[i], static_cast<int>(i));
}

TEST(Worker, TakesWorkFromManyAndEndsWithAllOfItDone) {
  std::atomic<int> done = 0;
  int plain = 0;  // no job runs beside another
  {
    Worker worker;
    std::vector<std::thread> askers;
    for (int thread = 0; thread < 4; ++thread)
      askers.emplace_back([&] {
        for (int i = 0; i < 2000; ++i) {  // more than the queue holds: add() waits for room
          worker.add([&] { ++plain, ++done; });
          if (i % 500 == 0) worker.wait();
        }
      });
    for (auto& asker : askers) asker.join();
  }
  EXPECT_EQ(done, 8000);
  EXPECT_EQ(plain, 8000);
}

TEST(Worker, WhatAJobHoldsIsGoneWhenItCountsAsDone) {
  Worker worker;
  const auto held = std::make_shared<int>(1);
  for (int i = 0; i < 200; ++i) {
    worker.add([held] {});
    worker.wait();
    ASSERT_EQ(held.use_count(), 1);
  }
}

TEST(FolderLock, IsHeldByOneThreadAtATime) {
  const testing::TempFolder folder;
  std::atomic<int> inside = 0, entered = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const FolderLock lock(folder / "run");
        if (!lock.exclusive()) {
          EXPECT_FALSE(lock.held());
          FolderLock::holder(folder / "run");
          continue;
        }
        EXPECT_EQ(++inside, 1);
        ++entered;
        --inside;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_GT(entered, 0);
}

}  // namespace
}  // namespace tightloop
