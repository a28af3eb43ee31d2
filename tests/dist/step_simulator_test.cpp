#include "train/optim/step_simulator.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/random.h"

namespace tightloop {
namespace {

/// Any schedule: a few buckets, ready and needed in any order, with or without gathered weights.
StepSchedule any_schedule(uint64_t seed) {
  Random random(seed);
  const auto draw = [&] { return random.uniform(); };
  StepSchedule schedule{.forward = draw(),
                        .backward = 2 * draw(),
                        .update = 0.1 * draw(),
                        .sums = 0.01 * draw(),
                        .other = 0.1 * draw(),
                        .accumulate = 1 + static_cast<int64_t>(3 * draw()),
                        .overlap = draw() < 0.7,
                        .each_pass = draw() < 0.3};
  const bool gathers = draw() < 0.5;
  for (int i = static_cast<int>(8 * draw()); i >= 0; --i)
    schedule.buckets.push_back({draw(), draw(), draw(), gathers ? draw() : 0});
  return schedule;
}

StepSchedule slower(StepSchedule schedule, double factor) {
  schedule.sums *= factor;
  for (auto& bucket : schedule.buckets) bucket.reduce *= factor, bucket.gather *= factor;
  return schedule;
}

constexpr uint64_t kSchedules = 2000;
constexpr double kRounding = 1e-9;

TEST(StepSimulator, WithoutCommunicationNothingIsExposed) {
  for (uint64_t seed = 0; seed < kSchedules; ++seed) {
    const auto step = simulate(slower(any_schedule(seed), 0));
    EXPECT_NEAR(step.exposed(), 0, kRounding) << seed;
    EXPECT_EQ(step.communication, 0) << seed;
  }
}

TEST(StepSimulator, IsNeverShorterThanComputingOrCommunicatingAloneNorLongerThanBoth) {
  for (uint64_t seed = 0; seed < kSchedules; ++seed) {
    const auto step = simulate(any_schedule(seed));
    EXPECT_GE(step.step, step.compute - kRounding) << seed;
    EXPECT_GE(step.step, step.communication - kRounding) << seed;
    EXPECT_LE(step.step, step.compute + step.communication + kRounding) << seed;
  }
}

TEST(StepSimulator, ASlowerNetworkNeverMakesAStepShorter) {
  for (uint64_t seed = 0; seed < kSchedules; ++seed) {
    double before = 0;
    for (const double factor : {0.0, 0.1, 0.5, 1.0, 1.5, 10.0}) {
      const double now = simulate(slower(any_schedule(seed), factor)).step;
      EXPECT_GE(now, before - kRounding) << seed << ", " << factor;
      before = now;
    }
  }
}

TEST(StepSimulator, OverlapNeverMakesAStepLonger) {
  for (uint64_t seed = 0; seed < kSchedules; ++seed) {
    StepSchedule schedule = any_schedule(seed);
    schedule.overlap = true;
    const double with = simulate(schedule).step;
    schedule.overlap = false;
    EXPECT_LE(with, simulate(schedule).step + kRounding) << seed;
  }
}

TEST(StepSimulator, TheChannelDoesOneThingAtATimeInOrder) {
  for (uint64_t seed = 0; seed < kSchedules; ++seed) {
    const StepSchedule schedule = any_schedule(seed);
    const auto step = simulate(schedule);
    double free = 0;
    for (const auto& bucket : step.buckets) free = std::max(free, bucket.gather_end);
    for (size_t i = 0; i < step.buckets.size(); ++i) {
      EXPECT_GE(step.buckets[i].reduce_begin, step.buckets[i].ready) << seed;
      EXPECT_GE(step.buckets[i].reduce_begin, free) << seed;
      EXPECT_NEAR(step.buckets[i].reduce_end - step.buckets[i].reduce_begin, schedule.buckets[i].reduce,
                  kRounding);
      free = step.buckets[i].reduce_end;
    }
    EXPECT_GE(step.step, free + schedule.sums + schedule.update - kRounding) << seed;
  }
}

// By hand: forward 1, backward 2 of three buckets that are whole after 0.5, 1 and 2.
TEST(StepSimulator, BucketsTravelWhileBackwardGoesOn) {
  StepSchedule schedule{.forward = 1,
                        .backward = 2,
                        .update = 0.25,
                        .buckets = {{0.25, 0.6, 1, 0}, {0.5, 0.3, 0.25, 0}, {1, 0, 0.5, 0}}};
  auto step = simulate(schedule);
  EXPECT_DOUBLE_EQ(step.buckets[0].reduce_begin, 1.5);
  EXPECT_DOUBLE_EQ(step.buckets[1].reduce_begin, 2.5) << "it was ready at 2; the one before took until then";
  EXPECT_DOUBLE_EQ(step.buckets[2].reduce_begin, 3);
  EXPECT_DOUBLE_EQ(step.step, 3.75);
  EXPECT_DOUBLE_EQ(step.exposed(), 0.5) << "of the last bucket, which nothing hides";
  EXPECT_DOUBLE_EQ(step.communication, 1.75);
  schedule.overlap = false;
  EXPECT_DOUBLE_EQ(simulate(schedule).step, 3 + 1.75 + 0.25);
}

TEST(StepSimulator, TheLastMicroBatchAloneCommunicatesUnlessEachDoes) {
  StepSchedule schedule{.forward = 1, .backward = 2, .accumulate = 3, .buckets = {{1, 0, 1.5, 0}}};
  EXPECT_DOUBLE_EQ(simulate(schedule).step, 9 + 1.5);
  EXPECT_DOUBLE_EQ(simulate(schedule).communication, 1.5);
  schedule.each_pass = true;
  EXPECT_DOUBLE_EQ(simulate(schedule).step, 9 + 1.5) << "the first two are hidden by the next pass";
  EXPECT_DOUBLE_EQ(simulate(schedule).communication, 4.5);
  schedule.overlap = false;
  EXPECT_DOUBLE_EQ(simulate(schedule).step, 9 + 4.5);
}

// Weights of the first layers come first; forward waits where they are not there.
TEST(StepSimulator, ForwardWaitsForTheWeightsOfALayer) {
  StepSchedule schedule{.forward = 1, .backward = 2, .buckets = {{0.5, 0.5, 0, 0.5}, {1, 0, 0, 0.25}}};
  auto step = simulate(schedule);
  EXPECT_DOUBLE_EQ(step.buckets[1].gather_end, 0.25);
  EXPECT_DOUBLE_EQ(step.buckets[0].gather_end, 0.75);
  EXPECT_DOUBLE_EQ(step.step, 3.25) << "0.25 for the first; the second half begins at 0.75, when it is there";
  schedule.buckets[0].gather = 1;
  EXPECT_DOUBLE_EQ(simulate(schedule).step, 3.75);
  schedule.overlap = false;
  EXPECT_DOUBLE_EQ(simulate(schedule).step, 3 + 1.25);
}

}  // namespace
}  // namespace tightloop
