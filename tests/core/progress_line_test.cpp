#include "core/terminal/progress_line.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/hash.h"

namespace tightloop {
namespace {

using Unit = ProgressLine::Unit;

TEST(ProgressLineText, SaysTheShareAndTheTimeLeft) {
  EXPECT_EQ(progress_line("Tokenizing", 340, 1000, Unit::kBytes, "12M tokens", 65.0, 33),
            "Tokenizing: 34 % of 1000 B, 12M tokens, about 1m05s left");
  EXPECT_EQ(progress_line("Answers", 12, 80, Unit::kCount, "", 7.0, 1),
            "Answers: 12/80, 15 %, about 7s left");
}

TEST(ProgressLineText, ClaimsNothingThatIsNotKnown) {
  EXPECT_EQ(progress_line("Reading", 0, 1000, Unit::kBytes, "", {}, 3), "Reading: 3s so far");
  EXPECT_EQ(progress_line("Tokenizing", 7, 0, Unit::kBytes, "5 tokens", {}, 3),
            "Tokenizing: 5 tokens, 3s so far");
  EXPECT_EQ(progress_line("Reading", 500, 1000, Unit::kBytes, "", {}, 3),
            "Reading: 50 % of 1000 B, 3s so far");
}

TEST(ProgressLineText, IsNotDoneBeforeTheEnd) {
  EXPECT_EQ(progress_line("Saving", 1999, 2000, Unit::kBytes, "", 0.4, 9),
            "Saving: 99 % of 2.0 KiB, about 0s left");
  EXPECT_EQ(progress_line("Saving", 2000, 2000, Unit::kBytes, "", 0.0, 9),
            "Saving: 100 % of 2.0 KiB, finishing");
  EXPECT_EQ(progress_line("Saving", 2100, 2000, Unit::kBytes, "", {}, 9),
            "Saving: 100 % of 2.0 KiB, finishing");
}

TEST(Ticker, TicksUntilItIsDestroyed) {
  std::atomic<int> ticks{0};
  {
    const Ticker ticker(std::chrono::milliseconds(1), [&] { ++ticks; });
    while (ticks < 3) std::this_thread::yield();
  }
  const int before = ticks;
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(ticks, before);
}

TEST(ProgressLine, HashingPieceByPieceGivesTheSameHash) {
  const std::string bytes((40 << 20) + 5, 'x');
  ProgressLine progress("Hashing", bytes.size());
  EXPECT_EQ(hash64(bytes, progress), hash64(bytes));
  EXPECT_EQ(hash64(std::string_view(), progress), hash64(std::string_view()));
}

}  // namespace
}  // namespace tightloop
