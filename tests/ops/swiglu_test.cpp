#include "ops/pointwise/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <limits>

#include "ops/compare.h"
#include "ops/cpu.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

Tensor fused(const std::vector<Tensor>& in) { return ops::swiglu(in[0]); }
Tensor plain(const std::vector<Tensor>& in) { return ops::swiglu_plain(in[0]); }

class SwigluOn : public OnDevice {};
ON_EVERY_DEVICE(SwigluOn);

TEST_P(SwigluOn, AgreesWithThePlainTwin) {
  for (const int64_t F : {1, 7, 8, 129, 344})
    for (const int64_t N : {0, 1, 100})
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        SCOPED_TRACE(::testing::Message() << N << " x " << F << ' ' << dtype << ' ' << device);
        const Tensor x = random_tensor({N, 2 * F}, dtype, 1, 3.0).to(device);
        expect_agreement(fused, plain, {x}, tolerance(dtype));
      }
}

TEST_P(SwigluOn, TakesViews) {
  const Tensor wide = random_tensor({4, 5, 66}, at::kFloat, 1).to(device);
  expect_agreement(fused, plain, {wide.slice(2, 1, 65)}, tolerance(at::kFloat));
  expect_agreement(fused, plain, {wide.transpose(0, 2).slice(2, 0, 4)}, tolerance(at::kFloat));
  const Tensor shifted = random_tensor({6 * 32 + 1}, at::kBFloat16, 5).to(device).slice(0, 1).view({6, 32});
  expect_agreement(fused, plain, {shifted}, tolerance(at::kBFloat16));
}

TEST_P(SwigluOn, StaysFiniteAtTheEnds) {
  Tensor x = at::tensor({-1e4f, -88.5f, 88.5f, 1e4f, 1.0f, 1.0f, 1.0f, 1.0f}).to(device).requires_grad_();
  const Tensor y = ops::swiglu(x);
  EXPECT_LE(relative_error(y, ops::swiglu_plain(x)), 1e-6);
  const Tensor gradient = torch::autograd::grad({y.sum()}, {x})[0];
  EXPECT_FALSE(gradient.isnan().any().item<bool>());
  EXPECT_NEAR(gradient[3].item<double>(), 1.0, 1e-6);
  EXPECT_NEAR(gradient[0].item<double>(), 0.0, 1e-6);
}

TEST(Swiglu, PlainTwinHasTheRightGradient) {
  expect_gradients_by_differences(plain, {random_tensor({3, 10}, at::kDouble, 1, 2.0)});
}

TEST(Swiglu, RefusesAnOddSize) {
  EXPECT_THROW(ops::swiglu(random_tensor({2, 7}, at::kFloat, 1)), c10::Error);
}

float exp_of(float x) { return ops::cpu::exp(ops::cpu::broadcast(x))[3]; }

TEST(CpuMath, ExpIsRightToTheLastDigitOrTwo) {
  double worst = 0;
  for (float x = -86.9f; x < 87.9f; x += 0.00371f) {
    const double right = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(exp_of(x) - right) / right);
  }
  EXPECT_LT(worst, 1.3e-7);
  EXPECT_EQ(exp_of(0.0f), 1.0f);
  EXPECT_EQ(exp_of(-200.0f), 0.0f);
  EXPECT_EQ(exp_of(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_GT(exp_of(500.0f), 1e38f);
  EXPECT_TRUE(std::isnan(exp_of(std::numeric_limits<float>::quiet_NaN())));
}

uint16_t rounded(float x) {
  c10::BFloat16 results[ops::cpu::kLanes];
  ops::cpu::store(results, ops::cpu::broadcast(x));
  return results[5].x;
}

TEST(CpuMath, RoundsToBf16AsTorchDoes) {
  for (const float x : {0.0f, -0.0f, 1.0f, 1.00390625f, 1.01171875f, 3.4e38f, 1e-40f, 65504.0f, -2.7182818f,
                        std::numeric_limits<float>::infinity()})
    EXPECT_EQ(rounded(x), c10::BFloat16(x).x) << x;
  for (uint32_t bits = 1; bits < 0xff000000u; bits += 7919 * 13) {
    const float x = std::bit_cast<float>(bits);
    if (std::isnan(x)) continue;
    ASSERT_EQ(rounded(x), c10::BFloat16(x).x) << x;
  }
  EXPECT_EQ(rounded(std::numeric_limits<float>::quiet_NaN()), 0x7fc0);
}

TEST(CpuMath, LoadsAndStoresOnlyTheLanesItIsTold) {
  c10::BFloat16 from[3] = {1.0f, -2.5f, 3.0f}, to[4] = {9.0f, 9.0f, 9.0f, 9.0f};
  const auto v = ops::cpu::load(from, int64_t{3}, -7.0f);
  EXPECT_EQ(v[1], -2.5f);
  EXPECT_EQ(v[2], 3.0f);
  EXPECT_EQ(v[3], -7.0f);
  ops::cpu::store(to, v, int64_t{3});
  EXPECT_EQ(static_cast<float>(to[2]), 3.0f);
  EXPECT_EQ(static_cast<float>(to[3]), 9.0f);
}

}  // namespace
}  // namespace tightloop::testing
