#include "dist/network.h"

#include <gtest/gtest.h>

namespace tightloop {
namespace {

Network eight_by(int64_t nodes) {
  return {.world = 8 * nodes,
          .per_node = 8,
          .inside = {.peak = 100e9, .latency = 1e-6},
          .between = {.peak = 10e9, .efficiency = 0.5, .latency = 10e-6}};
}

TEST(Network, AnAllReduceSendsTwiceAllPartsButOne) {
  const Network network = eight_by(1);
  EXPECT_DOUBLE_EQ(network.reduced_bytes(800), 2 * 700);
  EXPECT_DOUBLE_EQ(network.scattered_bytes(800), 700);
  EXPECT_DOUBLE_EQ(Network{.world = 2}.reduced_bytes(800), 800);
  EXPECT_DOUBLE_EQ(Network{.world = 1}.reduced_bytes(800), 0);
}

TEST(Network, TakesTheBytesAtTheSpeedOfTheNarrowestLinkAndTheLatencies) {
  // 7 messages of a microsecond around the machine, twice.
  EXPECT_NEAR(eight_by(1).reduce_time(800e6), 14e-6 + 1400e6 / 100e9, 1e-12);
  // Two machines: one message more, through a card that reaches half of 10 GB/s.
  EXPECT_NEAR(eight_by(2).reduce_time(1600e6), 2 * (7e-6 + 10e-6) + 3000e6 / 5e9, 1e-12);
  Network cards = eight_by(2);
  cards.cards = 4;
  EXPECT_NEAR(cards.reduce_time(1600e6), 2 * (7e-6 + 10e-6) + 3000e6 / 20e9, 1e-12);
  cards.cards = 100;
  EXPECT_NEAR(cards.bandwidth(), 100e9, 1) << "then it is the links inside";
  EXPECT_EQ(Network{.world = 1}.reduce_time(1e9), 0);
}

TEST(Network, WhatOneProcessGetsGoesWholeThroughALink) {
  EXPECT_NEAR(eight_by(1).chain_time(800e6), 7e-6 + 800e6 / 100e9, 1e-12);
  EXPECT_EQ(Network{.world = 1}.chain_time(1e9), 0);
}

TEST(Network, LatenciesGrowWithTheLogarithmOfMachinesWhereThereAreTrees) {
  Network network = eight_by(64);
  EXPECT_NEAR(network.latency(), 7e-6 + 6 * 10e-6, 1e-12);
  network.trees = false;
  EXPECT_NEAR(network.latency(), 64 * 7e-6 + 63 * 10e-6, 1e-12);
  const Network gloo{.world = 4, .per_node = 1, .between = {.peak = 1e6, .latency = 1e-3}, .trees = false};
  EXPECT_NEAR(gloo.latency(), 3e-3, 1e-12);
  EXPECT_NEAR(gloo.bandwidth(), 1e6, 1e-6) << "nothing is inside a machine of one process";
}

TEST(Network, EveryAssumptionIsNamed) {
  std::string all;
  for (const auto& line : eight_by(2).assumptions()) all += line;
  for (const char* figure : {"100 GB/s", "10 GB/s", "50 %", "1 us", "10 us", "2 machines", "1 link"})
    EXPECT_NE(all.find(figure), all.npos) << figure << " in: " << all;
}

}  // namespace
}  // namespace tightloop
