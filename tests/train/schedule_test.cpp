#include "train/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace tightloop {
namespace {

double scale(const TrainConfig& config, int64_t step, int64_t width = 512) {
  return rates_at(config, step, width).lr_scale;
}

TrainConfig with(ScheduleKind schedule, int64_t steps, int64_t warmup) {
  TrainConfig config;
  config.schedule = schedule, config.steps = steps, config.warmup_steps = warmup;
  return config;
}

TEST(Schedule, RisesThenFalls) {
  auto config = with(ScheduleKind::kCosine, 110, 10);
  EXPECT_DOUBLE_EQ(scale(config, 1), 0.1);
  EXPECT_DOUBLE_EQ(scale(config, 10), 1.0);
  EXPECT_NEAR(scale(config, 60), 0.55, 1e-12);
  EXPECT_NEAR(scale(config, 110), 0.1, 1e-12);
  for (int64_t step = 11; step < 110; ++step) EXPECT_LT(scale(config, step + 1), scale(config, step));
  config.schedule = ScheduleKind::kLinear;
  EXPECT_NEAR(scale(config, 35), 0.1 + 0.9 * 0.75, 1e-12);
  config.schedule = ScheduleKind::kConstant;
  EXPECT_DOUBLE_EQ(scale(config, 110), 1.0);
}

// Numbers of MiniMind's get_lr(4 * step, 40, 1.0).
TEST(Schedule, MinimindCountsMicroBatchesFromOne) {
  auto config = with(ScheduleKind::kMinimind, 10, 3);
  for (const int64_t accumulate : {1, 4}) {
    config.accumulate = accumulate;
    const double expected[]{0.97797543, 0.91405765, 0.81450336, 0.68905765, 0.55,
                            0.41094235, 0.28549664, 0.18594235, 0.12202457, 0.1};
    for (int64_t step = 1; step <= 10; ++step)
      EXPECT_NEAR(scale(config, step), expected[step - 1], 5e-9) << step;
  }
}

// nanochat: (it + 1) / warmup, then 1, then linear over the last round(ratio * steps), for it from 0.
TEST(Schedule, WsdIsNanochats) {
  auto config = with(ScheduleKind::kWsd, 21, 4);
  config.decay_fraction = 0.5, config.min_lr = 0.05;  // round(10.5) is 10
  EXPECT_DOUBLE_EQ(scale(config, 1), 0.25);
  EXPECT_DOUBLE_EQ(scale(config, 4), 1);
  for (int64_t it = 4; it <= 11; ++it) EXPECT_DOUBLE_EQ(scale(config, it + 1), 1) << it;
  for (int64_t it = 12; it < 21; ++it) {
    const double progress = static_cast<double>(21 - it) / 10;
    EXPECT_NEAR(scale(config, it + 1), progress + (1 - progress) * 0.05, 1e-12) << it;
  }
}

TEST(Schedule, MuonsMomentumAndDecayAreNanochats) {
  auto config = with(ScheduleKind::kWsd, 1000, 40);
  config.decay_fraction = 0.5;
  const auto at = [&](int64_t it) { return rates_at(config, it + 1, 0); };
  EXPECT_DOUBLE_EQ(at(0).momentum, 0.85);
  EXPECT_NEAR(at(100).momentum, 0.88, 1e-12);
  EXPECT_DOUBLE_EQ(at(400).momentum, 0.97);
  EXPECT_DOUBLE_EQ(at(499).momentum, 0.97);
  EXPECT_NEAR(at(750).momentum, 0.935, 1e-12);
  EXPECT_NEAR(at(999).momentum, 0.97 * 0.002 + 0.90 * 0.998, 1e-12);
  EXPECT_DOUBLE_EQ(at(0).decay_scale, 1);
  EXPECT_NEAR(at(500).decay_scale, 0.5, 1e-12);
  config.muon_decay_schedule = DecaySchedule::kConstant;
  EXPECT_DOUBLE_EQ(at(500).decay_scale, 1);
}

TEST(Schedule, NoamIsThePapers) {
  const auto config = with(ScheduleKind::kNoam, 100000, 4000);
  EXPECT_NEAR(scale(config, 1, 512), 1.7469281e-07, 1e-13);  // 512^-0.5 * 4000^-1.5
  EXPECT_NEAR(scale(config, 4000, 512), 6.9877124e-04, 1e-10);
  EXPECT_NEAR(scale(config, 16000, 512), 3.4938562e-04, 1e-10);
  EXPECT_NEAR(scale(with(ScheduleKind::kNoam, 10, 0), 4, 1), 0.5, 1e-12) << "without a warm-up";
}

TEST(Schedule, InverseSquareRootKeepsItsPeak) {
  const auto config = with(ScheduleKind::kInverseSqrt, 1000, 100);
  EXPECT_DOUBLE_EQ(scale(config, 50), 0.5);
  EXPECT_DOUBLE_EQ(scale(config, 100), 1);
  EXPECT_DOUBLE_EQ(scale(config, 400), 0.5);
  EXPECT_DOUBLE_EQ(scale(with(ScheduleKind::kInverseSqrt, 10, 0), 4), 0.5);
}

}  // namespace
}  // namespace tightloop
