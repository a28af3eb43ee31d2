#include "ops/pointwise/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <cmath>

#include "core/random.h"
#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

constexpr int64_t kNumber = -0x123456789abcdef;  // all of its 64 bits count

Tensor number(int64_t value, at::Device device) {
  return at::full({}, value, at::TensorOptions(at::kLong).device(device));
}

class DropoutOn : public OnDevice {
 protected:
  /// Which of `count` ones stay.
  Tensor kept(int64_t count, double p, int64_t random, int64_t site, at::ScalarType dtype = at::kFloat) {
    const auto ones = at::ones({count}, at::TensorOptions(dtype).device(device));
    return ops::dropout(ones, {p, number(random, device), site}).ne(0).to(at::kCPU);
  }
};
ON_EVERY_DEVICE(DropoutOn);

TEST_P(DropoutOn, AgreesWithThePlainTwin) {
  for (const int64_t N : {0, 1, 3, 8, 31, 32, 33, 1000, 70001})
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(::testing::Message() << N << ' ' << dtype << ' ' << device);
      const auto fused = [&](const auto& in) {
        return ops::dropout(in[0], {0.3, number(kNumber, in[0].device()), 7});
      };
      const auto plain = [&](const auto& in) {
        return ops::dropout_plain(in[0], {0.3, number(kNumber, in[0].device()), 7});
      };
      expect_agreement(fused, plain, {random_tensor({N}, dtype, 1).to(device)}, tolerance(dtype));
    }
}

TEST_P(DropoutOn, TheMaskIsPhiloxOnEveryDeviceAndInEveryDtype) {
  constexpr int64_t kCount = 1003, kSite = 0x500000003;
  std::vector<bool> wanted;
  for (int64_t i = 0; i < kCount; ++i)
    wanted.push_back(philox(static_cast<uint64_t>(kNumber), i / 4, kSite)[i % 4] >= 0x40000000u);
  const auto twin = ops::dropout_mask(kCount, {0.25, number(kNumber, device), kSite}).to(at::kCPU);
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(twin[i].item<bool>(), wanted[i]) << i;
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble})
    EXPECT_TRUE(at::equal(kept(kCount, 0.25, kNumber, kSite, dtype), twin)) << dtype;
}

TEST_P(DropoutOn, KeepsTheShareThatItShould) {
  constexpr int64_t kCount = 400'000;
  for (const double p : {0.01, 0.1, 0.5, 0.99}) {
    const double share = kept(kCount, p, 5, 1).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(share, 1 - p, 5 * std::sqrt(p * (1 - p) / kCount)) << p;
  }
}

TEST_P(DropoutOn, NumbersSitesAndNeighboursAreIndependent) {
  constexpr int64_t kCount = 100'000;
  const auto a = kept(kCount, 0.5, 5, 1);
  const double spread = 5 * 0.5 / std::sqrt(kCount);
  const auto same = [&](const Tensor& b) { return (a == b).to(at::kDouble).mean().item<double>(); };
  EXPECT_EQ(same(kept(kCount, 0.5, 5, 1)), 1);
  for (const auto& other : {kept(kCount, 0.5, 5, 2), kept(kCount, 0.5, 6, 1), kept(kCount, 0.5, 5, 1 << 20)})
    EXPECT_NEAR(same(other), 0.5, spread);
  for (const int64_t distance : {1, 2, 4, 32})
    EXPECT_NEAR(same(a.roll(distance)), 0.5, spread) << "elements " << distance << " apart";
}

TEST_P(DropoutOn, TakesViews) {
  const auto function = [](const auto& in) {
    return ops::dropout(in[0], {0.5, number(11, in[0].device()), 3});
  };
  const auto wide = random_tensor({4, 5, 66}, at::kFloat, 1).to(device);
  for (const auto& view : {wide.slice(2, 1, 65), wide.transpose(0, 2), wide.select(1, 2).t()}) {
    expect_agreement(function, function, {view}, tolerance(at::kFloat));
    EXPECT_TRUE(at::equal(function(std::vector{view}), function(std::vector{view.contiguous()})));
  }
  const auto shifted = random_tensor({321}, at::kBFloat16, 5).to(device).slice(0, 1);
  expect_agreement(function, function, {shifted}, tolerance(at::kBFloat16));
}

TEST_P(DropoutOn, NothingToDropIsTheTensorItself) {
  const auto x = random_tensor({5}, at::kFloat, 1).to(device);
  EXPECT_TRUE(ops::dropout(x, {0, {}, 1}).is_same(x));
}

TEST_P(DropoutOn, DroppedElementsHideWhatTheyWere) {
  const auto x = at::full({64}, INFINITY, at::TensorOptions(at::kFloat).device(device));
  const auto y = ops::dropout(x, {0.5, number(1, device), 1});
  EXPECT_FALSE(y.isnan().any().item<bool>());
  EXPECT_GT(y.eq(0).sum().item<int64_t>(), 10);
}

TEST(Dropout, PlainTwinHasTheRightGradient) {
  expect_gradients_by_differences(
      [](const auto& in) {
        return ops::dropout_plain(in[0], {0.4, number(3, at::kCPU), 2});
      },
      {random_tensor({3, 10}, at::kDouble, 1)});
}

TEST(Dropout, RefusesWhatItCannotUse) {
  const auto x = random_tensor({4}, at::kFloat, 1);
  EXPECT_THROW(ops::dropout(x, ops::Dropout{1.0, number(1, at::kCPU), 1}), c10::Error);
  EXPECT_THROW(ops::dropout(x, ops::Dropout{-0.1, number(1, at::kCPU), 1}), c10::Error);
  EXPECT_THROW(ops::dropout(x, ops::Dropout{0.1, {}, 1}), c10::Error);
  EXPECT_THROW(ops::dropout(x, ops::Dropout{0.1, at::ones({1}), 1}), c10::Error);
  EXPECT_THROW(ops::dropout(x, ops::Dropout{0.1, at::ones({2}, at::kLong), 1}), c10::Error);
}

}  // namespace
}  // namespace tightloop::testing
