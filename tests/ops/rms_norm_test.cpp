#include "ops/rms_norm.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using at::Tensor;
constexpr double kEps = 1e-5;

// A row of one element has nearly no gradient but through epsilon: with a small one only rounding would be
// compared.
double epsilon(const Tensor& x) { return x.size(-1) == 1 ? 1.0 : kEps; }

Tensor fused(const std::vector<Tensor>& in) { return ops::rms_norm(in[0], in[1], epsilon(in[0])); }
Tensor plain(const std::vector<Tensor>& in) { return ops::rms_norm_plain(in[0], in[1], epsilon(in[0])); }

void compare(at::IntArrayRef shape, at::ScalarType dtype, at::ScalarType weight_dtype, at::Device device) {
  SCOPED_TRACE(::testing::Message() << "shape " << shape << ' ' << dtype << " weight " << weight_dtype << ' '
                                    << device);
  const Tensor x = random_tensor(shape, dtype, 1).to(device);
  const Tensor weight = (random_tensor({shape.back()}, at::kDouble, 2) + 1.0).to(device, weight_dtype);
  expect_agreement(fused, plain, {x, weight}, tolerance(dtype));
}

class RmsNormOn : public OnDevice {};
ON_EVERY_DEVICE(RmsNormOn);

TEST_P(RmsNormOn, AgreesWithThePlainTwin) {
  for (const int64_t D : {1, 7, 8, 128, 129, 768})
    for (const int64_t N : {1, 3, 200}) {
      compare({N, D}, at::kFloat, at::kFloat, device);
      compare({N, D}, at::kBFloat16, at::kBFloat16, device);
      compare({N, D}, at::kBFloat16, at::kFloat, device);
      if (device.is_cuda()) compare({N, D}, at::kHalf, at::kHalf, device);
    }
}

TEST_P(RmsNormOn, TakesLongRowsAndManyRows) {
  compare({2, 3, 5000}, at::kFloat, at::kFloat, device);
  compare({3, 8192}, at::kBFloat16, at::kFloat, device);
  compare({3000, 64}, at::kFloat, at::kFloat, device);
}

TEST_P(RmsNormOn, TakesNothing) { compare({0, 16}, at::kFloat, at::kFloat, device); }

TEST_P(RmsNormOn, TakesViews) {
  const Tensor base = random_tensor({6, 40, 9}, at::kFloat, 3).to(device);
  const Tensor weight = random_tensor({80}, at::kFloat, 4).to(device);
  expect_agreement(fused, plain, {base.transpose(1, 2), weight.slice(0, 0, 80, 2)}, tolerance(at::kFloat));
  // Dense rows that start at an odd address: no 16-byte accesses there.
  const Tensor shifted = random_tensor({8 * 64 + 1}, at::kBFloat16, 5).to(device).slice(0, 1).view({8, 64});
  expect_agreement(fused, plain, {shifted, weight.slice(0, 3, 67)}, tolerance(at::kBFloat16));
}

TEST_P(RmsNormOn, KeepsLargeAndSmallNumbers) {
  for (const double scale : {1e-12, 1e-3, 1e15}) {
    const Tensor x = random_tensor({4, 96}, at::kFloat, 6, scale).to(device);
    const Tensor y = ops::rms_norm(x, at::ones({96}, x.options()), 0.0);
    EXPECT_NEAR((y * y).mean().item<double>(), 1.0, 1e-5) << scale;
  }
}

TEST_P(RmsNormOn, PassesOnNaN) {
  Tensor x = at::ones({2, 8}, at::kBFloat16).to(device);
  x[1][3] = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = ops::rms_norm(x, at::ones({8}, x.options()), kEps);
  EXPECT_FALSE(y[0].isnan().any().item<bool>());
  EXPECT_TRUE(y[1].isnan().all().item<bool>());
}

// Bits, not digits: the sum over rows has a fixed order whatever the number of threads or the run.
TEST_P(RmsNormOn, GivesTheSameBitsAgain) {
  std::vector<Tensor> first;
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 3, 3}) {
    at::set_num_threads(count);
    Tensor x = random_tensor({1777, 96}, at::kFloat, 7).to(device).requires_grad_();
    Tensor weight = random_tensor({96}, at::kFloat, 8).to(device).requires_grad_();
    const Tensor y = ops::rms_norm(x, weight, kEps);
    auto results =
        torch::autograd::grad({y}, {x, weight}, {random_tensor({1777, 96}, at::kFloat, 9).to(device)});
    results.push_back(y);
    if (first.empty()) first = results;
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], results[i])) << i;
  }
  at::set_num_threads(threads);
}

TEST(RmsNorm, PlainTwinHasTheRightGradient) {
  expect_gradients_by_differences(
      plain, {random_tensor({3, 5}, at::kDouble, 1), random_tensor({5}, at::kDouble, 2)});
}

TEST(RmsNorm, FallsBackToThePlainTwinForOtherDtypes) {
  const Tensor x = random_tensor({3, 5}, at::kDouble, 1), weight = random_tensor({5}, at::kDouble, 2);
  EXPECT_TRUE(at::equal(fused({x, weight}), plain({x, weight})));
}

TEST(RmsNorm, RefusesAWeightOfTheWrongSize) {
  EXPECT_THROW(ops::rms_norm(at::ones({2, 8}), at::ones({7}), kEps), c10::Error);
}

}  // namespace
}  // namespace tightloop::testing
