#include "ops/attention/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

const std::vector<size_t> kTables{1, 2};

Function fused(int64_t offset) {
  return [=](const std::vector<Tensor>& in) { return ops::rope(in[0], in[1], in[2], offset); };
}
Function plain(int64_t offset) {
  return [=](const std::vector<Tensor>& in) { return ops::rope_plain(in[0], in[1], in[2], offset); };
}

class RopeOn : public OnDevice {};
ON_EVERY_DEVICE(RopeOn);

TEST_P(RopeOn, AgreesWithThePlainTwin) {
  for (const int64_t D : {2, 6, 14, 32, 64, 130})
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const auto [cos, sin] = ops::rope_tables(40, ops::rope_frequencies(D, 10000.0));
      for (const int64_t offset : {0, 9}) {
        SCOPED_TRACE(::testing::Message() << D << ' ' << dtype << ' ' << device << " at " << offset);
        const Tensor x = random_tensor({2, 31, 3, D}, dtype, 1).to(device);
        expect_agreement(fused(offset), plain(offset), {x, cos.to(device), sin.to(device)}, tolerance(dtype),
                         kTables);
      }
    }
}

// As the model calls it: q and k are slices of one projection.
TEST_P(RopeOn, TakesSlicesOfAFusedProjection) {
  const auto [cos, sin] = ops::rope_tables(8, ops::rope_frequencies(16, 10000.0));
  const Tensor qkv = random_tensor({3, 8, 6 * 16 + 1}, at::kFloat, 1).to(device);
  for (const int64_t start : {0, 1, 64}) {  // 1: not aligned to 16 bytes
    const Tensor q = qkv.slice(2, start, start + 32).view({3, 8, 2, 16});
    expect_agreement(fused(0), plain(0), {q, cos.to(device), sin.to(device)}, tolerance(at::kFloat), kTables);
  }
  const Tensor heads_first = random_tensor({3, 2, 8, 16}, at::kBFloat16, 2).to(device).transpose(1, 2);
  expect_agreement(fused(0), plain(0), {heads_first, cos.to(device), sin.to(device)},
                   tolerance(at::kBFloat16), kTables);
  const Tensor sparse = random_tensor({3, 8, 2, 32}, at::kFloat, 3).to(device).slice(3, 0, 32, 2);
  expect_agreement(fused(0), plain(0), {sparse, cos.to(device), sin.to(device)}, tolerance(at::kFloat),
                   kTables);
}

TEST_P(RopeOn, TakesNothing) {
  const auto [cos, sin] = ops::rope_tables(4, ops::rope_frequencies(8, 10000.0));
  const Tensor x = random_tensor({0, 4, 2, 8}, at::kFloat, 1).to(device);
  expect_agreement(fused(0), plain(0), {x, cos.to(device), sin.to(device)}, tolerance(at::kFloat), kTables);
}

// What rotary embedding is for: the product of a query and a key depends on their distance alone.
TEST(Rope, ProductsDependOnTheDistance) {
  const auto [cos, sin] = ops::rope_tables(100, ops::rope_frequencies(32, 10000.0));
  const Tensor q = random_tensor({1, 1, 1, 32}, at::kFloat, 1),
               k = random_tensor({1, 1, 1, 32}, at::kFloat, 2);
  const auto product = [&, cos = cos, sin = sin](int64_t at_q, int64_t at_k) {
    return (ops::rope(q, cos, sin, at_q) * ops::rope(k, cos, sin, at_k)).sum().item<double>();
  };
  EXPECT_NEAR(product(7, 3), product(96, 92), 1e-4);
  EXPECT_GT(std::abs(product(7, 3) - product(7, 6)), 1e-2);
}

TEST(Rope, OffsetContinuesASequence) {
  const auto [cos, sin] = ops::rope_tables(20, ops::rope_frequencies(16, 10000.0));
  const Tensor x = random_tensor({2, 20, 3, 16}, at::kBFloat16, 1);
  const Tensor whole = ops::rope(x, cos, sin);
  const Tensor parts =
      at::cat({ops::rope(x.slice(1, 0, 13), cos, sin, 0), ops::rope(x.slice(1, 13), cos, sin, 13)}, 1);
  EXPECT_TRUE(at::equal(whole, parts));
}

// Each row at a position of its own, as if it were alone there; below 0 as at 0.
TEST_P(RopeOn, RowsMayHavePositionsOfTheirOwn) {
  const c10::NoGradGuard no_grad;
  for (const int64_t size : {16, 6}) {
    const auto [cos, sin] = ops::rope_tables(50, ops::rope_frequencies(size, 10000.0));
    const Tensor c = cos.to(device), s = sin.to(device),
                 x = random_tensor({5, 1, 3, size}, at::kBFloat16, 1).to(device);
    const std::vector<int32_t> positions{7, 0, 49, -1, 7};
    const Tensor turned = ops::rope(x, c, s, 0, at::tensor(positions, at::kInt).to(device));
    for (int64_t n = 0; n < 5; ++n)
      EXPECT_TRUE(at::equal(
          turned[n], ops::rope(x.narrow(0, n, 1), c, s, std::max(positions[static_cast<size_t>(n)], 0))[0]))
          << n;
  }
}

TEST(Rope, TablesAreExact) {
  const auto [cos, sin] = ops::rope_tables(3000, ops::rope_frequencies(8, 500000.0));
  EXPECT_EQ(cos[2999][1].item<float>(), static_cast<float>(std::cos(2999 * std::pow(500000.0, -0.25))));
  EXPECT_EQ(sin[1][0].item<float>(), static_cast<float>(std::sin(1.0)));
}

TEST(Rope, PlainTwinHasTheRightGradient) {
  const auto [cos, sin] = ops::rope_tables(4, ops::rope_frequencies(6, 100.0));
  const Tensor x = random_tensor({2, 3, 1, 6}, at::kDouble, 1);
  expect_gradients_by_differences(plain(1), {x, cos.to(at::kDouble), sin.to(at::kDouble)}, kTables);
}

TEST(Rope, RefusesPositionsOutsideTheTables) {
  const auto [cos, sin] = ops::rope_tables(4, ops::rope_frequencies(8, 10000.0));
  const Tensor x = random_tensor({1, 3, 1, 8}, at::kFloat, 1);
  EXPECT_THROW(ops::rope(x, cos, sin, 2), c10::Error);
  EXPECT_THROW(ops::rope(x, cos, sin, -1), c10::Error);
  EXPECT_THROW(ops::rope(x.slice(3, 0, 6), cos, sin), c10::Error);
}

}  // namespace
}  // namespace tightloop::testing
