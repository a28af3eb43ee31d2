#include "train/report/step_watch.h"

#include <gtest/gtest.h>

namespace tightloop {
namespace {

TEST(StepWatch, SaysHowTheFirstStepsGo) {
  EXPECT_EQ(pace_text({.step = 1, .total = 1000, .under_way = 12}), "step    1/1000  first step, 12s so far");
  EXPECT_EQ(pace_text({.step = 4, .total = 1000, .timed = 3, .seconds = 6.3, .under_way = 1}),
            "step    4/1000  first steps, 2.1 s a step, about 34m53s left");
}

TEST(StepWatch, SaysHowLongAStepTakes) {
  EXPECT_EQ(pace_text({.step = 8, .total = 10, .timed = 7, .seconds = 280, .under_way = 31, .first = false}),
            "step  8/10  40s a step, about 1m29s left, this one 31s so far");
}

// The host runs ahead of a device: what it has started says nothing about the speed.
TEST(StepWatch, GuessesNoSpeedOfADevice) {
  EXPECT_EQ(
      pace_text({.step = 200, .total = 1000, .timed = 199, .seconds = 1, .since_start = 12, .queued = true}),
      "step  200/1000  sent to the device, 12s after the start");
}

}  // namespace
}  // namespace tightloop
