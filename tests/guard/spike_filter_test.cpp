#include "train/guard/spike_filter.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>

#include <cmath>

#include "core/random.h"
#include "support.h"

namespace tightloop {
namespace {

/// Losses near 3 with a spread of 0.1, from a seed.
struct NoisyLosses {
  Random random{7};
  double next() { return 3 + 0.1 * (static_cast<double>(random.below(1000)) / 500 - 1); }
};

TEST(SpikeFilter, TellsASpikeAndNotNoise) {
  SpikeFilter filter(8);
  NoisyLosses losses;
  for (int i = 0; i < 500; ++i) EXPECT_FALSE(filter.judge(losses.next())) << i;
  const auto spike = filter.judge(6);
  ASSERT_TRUE(spike);
  EXPECT_NEAR(spike->median, 3, 0.05);
  EXPECT_LT(spike->limit, 4);
  EXPECT_FALSE(filter.judge(1)) << "only upwards";
}

TEST(SpikeFilter, NothingIsASpikeInTheWarmUp) {
  SpikeFilter filter(8);
  for (int i = 1; i < SpikeFilter::kWarmUp; ++i) EXPECT_FALSE(filter.judge(i % 2 ? 3 : 300)) << i;
}

TEST(SpikeFilter, SpikesDoNotRaiseTheLimit) {
  SpikeFilter filter(8);
  NoisyLosses losses;
  for (int i = 0; i < 200; ++i) filter.judge(losses.next());
  for (int i = 0; i < 300; ++i) {
    EXPECT_TRUE(filter.judge(30)) << i;
    for (int j = 0; j < 3; ++j) EXPECT_FALSE(filter.judge(losses.next()));
  }
}

TEST(SpikeFilter, ALossThatIsNotFiniteIsNotTakenIn) {
  SpikeFilter filter(8);
  NoisyLosses losses;
  for (int i = 0; i < 200; ++i) {
    EXPECT_FALSE(filter.judge(NAN));
    EXPECT_FALSE(filter.judge(INFINITY));
    EXPECT_FALSE(filter.judge(losses.next()));
  }
  EXPECT_TRUE(filter.judge(6));
}

TEST(SpikeFilter, ANewLevelIsTakenAsOneAfterAWhile) {
  SpikeFilter filter(8);
  NoisyLosses losses;
  for (int i = 0; i < 200; ++i) filter.judge(losses.next());
  int spikes = 0;
  for (int i = 0; i < 300; ++i) spikes += filter.judge(5 + losses.next()).has_value();
  EXPECT_EQ(spikes, SpikeFilter::kNewLevel);
}

TEST(SpikeFilter, EqualLossesLeaveRoom) {
  SpikeFilter filter(8);
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(filter.judge(2));
  EXPECT_FALSE(filter.judge(2.1));
  EXPECT_TRUE(filter.judge(2.2));
}

TEST(SpikeFilter, OnTheDeviceIsTheSame) {
  SpikeFilter host(8);
  DeviceSpikeFilter device(at::kCPU, 8);
  NoisyLosses losses;
  int spikes = 0;
  for (int i = 0; i < 700; ++i) {
    double loss = losses.next();
    if (i % 50 == 49) loss = 20;
    if (i % 70 == 69) loss = NAN;
    if (i > 400 && i < 450) loss += 9;  // a new level
    const auto spike = host.judge(loss);
    device.judge(at::scalar_tensor(loss, at::kDouble));
    device.commit();
    ASSERT_EQ(device.spike().item<bool>(), spike.has_value()) << i;
    if (spike) {
      EXPECT_DOUBLE_EQ(device.limit().item<double>(), spike->limit);
    }
    ASSERT_TRUE(at::equal(device.state(), host.state())) << i;
    spikes += spike.has_value();
  }
  EXPECT_GT(spikes, 20);
}

TEST(SpikeFilter, GoesOnFromItsState) {
  SpikeFilter one(8), two(8);
  NoisyLosses losses;
  for (int i = 0; i < 150; ++i) one.judge(losses.next());
  two.load(one.state());
  for (int i = 0; i < 150; ++i) {
    const double loss = i % 20 ? losses.next() : 9;
    EXPECT_EQ(one.judge(loss).has_value(), two.judge(loss).has_value());
  }
  EXPECT_TRUE(at::equal(one.state(), two.state()));
}

}  // namespace
}  // namespace tightloop
