#include "core/random.h"

#include <vector>

#include "support.h"

namespace tightloop {
namespace {

// Vectors published with the generator (Random123's known answers for philox4x32-10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, IsAFunctionOfSeedAndStream) {
  Random a(1, 2), b(1, 2), c(1, 3);
  int same = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t value = a.next();
    EXPECT_EQ(value, b.next());
    same += value == c.next();
  }
  EXPECT_EQ(same, 0);
}

TEST(Random, BelowIsEven) {
  Random random(7);
  std::vector<int> counts(6);
  for (int i = 0; i < 60000; ++i) ++counts.at(random.below(6));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(random.below(1), 0u);
}

TEST(Permutation, IsOneToOneForEverySize) {
  for (uint64_t size = 1; size < 300; ++size) {
    const Permutation permutation(size, size * 31);
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t at = permutation[i];
      ASSERT_LT(at, size);
      EXPECT_FALSE(seen[at]) << size;
      seen[at] = true;
    }
  }
}

TEST(Permutation, ShufflesWell) {
  constexpr uint64_t kSize = 10000;
  const Permutation permutation(kSize, 5), other(kSize, 6);
  double moved = 0;
  int stayed = 0, neighbours = 0, same = 0;
  for (uint64_t i = 0; i < kSize; ++i) {
    const double distance = static_cast<double>(permutation[i]) - static_cast<double>(i);
    moved += std::abs(distance);
    stayed += distance == 0;
    same += permutation[i] == other[i];
    neighbours += i > 0 && permutation[i] == permutation[i - 1] + 1;
  }
  EXPECT_NEAR(moved / kSize, kSize / 3.0,
              kSize * 0.02);  // a random shuffle moves an element a third of the way
  EXPECT_LT(stayed, 10);
  EXPECT_LT(neighbours, 10);
  EXPECT_LT(same, 10);
}

TEST(Permutation, LargeDomainsWork) {
  const Permutation permutation(uint64_t{1} << 40, 3);
  EXPECT_NE(permutation[0], permutation[1]);
  EXPECT_LT(permutation[(uint64_t{1} << 40) - 1], uint64_t{1} << 40);
}

}  // namespace
}  // namespace tightloop
