#include "ops/norm/residual_norm.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/layer_norm.h>

#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

constexpr double kEps = 1e-5;

ops::Dropout dropout(double share, at::Device device) {
  return {share, at::full({}, 0x7654321, at::TensorOptions(at::kLong).device(device)), 3};
}

enum class Used { kBoth, kSum, kNormed };

Tensor used(const ops::NormedSum& made, Used what) {
  if (what == Used::kSum) return made.sum * 1.0;
  return what == Used::kNormed ? made.normed : at::cat({made.sum, made.normed}, 0);
}

class ResidualNormOn : public OnDevice {
 protected:
  void compare(int64_t rows, int64_t D, at::ScalarType dtype, double share, Used what = Used::kBoth) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << D << ' ' << dtype << " dropout " << share
                                      << " used " << static_cast<int>(what) << ' ' << device);
    const auto vector = [&](uint64_t seed) { return random_tensor({D}, dtype, seed, 0.5).to(device); };
    std::vector<size_t> fixed;
    if (what == Used::kSum) fixed = {3, 4};
    expect_agreement(
        [&](const auto& in) {
          return used(
              ops::residual_norm(in[0], in[1], in[2], in[3], in[4], kEps, dropout(share, in[0].device())),
              what);
        },
        [&](const auto& in) {
          return used(ops::residual_norm_plain(in[0], in[1], in[2], in[3], in[4], kEps,
                                               dropout(share, in[0].device())),
                      what);
        },
        {random_tensor({rows, D}, dtype, 1).to(device), random_tensor({rows, D}, dtype, 2).to(device),
         vector(3), vector(4), vector(5)},
        norm_tolerance(dtype), fixed);
  }
  /// In 16 bits the sum is rounded before it is normed, and both count.
  static double norm_tolerance(at::ScalarType dtype) {
    return dtype == at::kFloat ? 4e-6 : 2 * tolerance(dtype);
  }
};
ON_EVERY_DEVICE(ResidualNormOn);

TEST_P(ResidualNormOn, AgreesWithThePlainTwin) {
  for (const double share : {0.0, 0.3})
    for (const int64_t D : {4, 8, 12, 64, 100, 512, 768})
      for (const int64_t rows : {1, 5}) compare(rows, D, at::kFloat, share);
}

TEST_P(ResidualNormOn, AgreesIn16Bits) {
  if (!has_kernel_for("tightloop::residual_norm_forward", device))
    GTEST_SKIP() << "torch's passes round each step";
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    if (dtype == at::kHalf && device.is_cpu()) continue;
    for (const double share : {0.0, 0.3})
      for (const int64_t D : {8, 64, 256, 520, 1024, 1032, 2560, 8192}) compare(3, D, dtype, share);
  }
}

TEST_P(ResidualNormOn, TakesManyRows) {
  compare(1700, 16, at::kFloat, 0.1);  // more than warps of a Hopper at once: some have several
  compare(300, 1536, at::kFloat, 0);
}

TEST_P(ResidualNormOn, EitherResultMayBeUnused) {
  for (const double share : {0.0, 0.3}) {
    compare(7, 64, at::kFloat, share, Used::kNormed);
    compare(7, 64, at::kFloat, share, Used::kSum);
  }
}

TEST_P(ResidualNormOn, RowsWithoutAKernelAreServedToo) {
  compare(4, 7, at::kFloat, 0.2);
  compare(2, 9000, at::kFloat, 0);
}

TEST_P(ResidualNormOn, NormsWithoutASum) {
  const bool ours = has_kernel_for("tightloop::residual_norm_forward", device);  // torch's rounds each step
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const int64_t D : {7, 64, 768, 2560})
      for (const int64_t rows : {0, 5, 2200})
        if ((rows < 10 || D == 64) && (dtype == at::kFloat || (ours && D % 8 == 0)))
          expect_agreement(
              [](const auto& in) { return ops::layer_norm(in[0], in[1], in[2], kEps); },
              [](const auto& in) { return at::layer_norm(in[0], {in[0].size(1)}, in[1], in[2], kEps); },
              {random_tensor({rows, D}, dtype, 1).to(device), random_tensor({D}, dtype, 2).to(device),
               random_tensor({D}, dtype, 3).to(device)},
              norm_tolerance(dtype));
}

TEST_P(ResidualNormOn, TakesNothing) { compare(0, 16, at::kFloat, 0.1); }

TEST_P(ResidualNormOn, RefusesVectorsOfOtherLengths) {
  const auto x = random_tensor({3, 16}, at::kFloat, 1).to(device),
             right = random_tensor({16}, at::kFloat, 2).to(device);
  const auto wrong = right.slice(0, 0, 8);
  EXPECT_THROW(ops::residual_norm(x, x, wrong, right, right, kEps), c10::Error);
  EXPECT_THROW(ops::residual_norm(x, x, right, wrong, right, kEps), c10::Error);
  EXPECT_THROW(ops::residual_norm(x, x.slice(0, 0, 2), right, right, right, kEps), c10::Error);
}

TEST_P(ResidualNormOn, GivesTheSameBitsAgain) {
  std::vector<at::Tensor> first;
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 3, 3}) {
    at::set_num_threads(count);
    const auto leaf = [&](at::IntArrayRef shape, uint64_t seed) {
      return random_tensor(shape, at::kFloat, seed).to(device).requires_grad_();
    };
    const std::vector<Tensor> in{leaf({777, 96}, 1), leaf({777, 96}, 2), leaf({96}, 3), leaf({96}, 4),
                                 leaf({96}, 5)};
    const auto y =
        used(ops::residual_norm(in[0], in[1], in[2], in[3], in[4], kEps, dropout(0.2, device)), Used::kBoth);
    auto results = torch::autograd::grad({y}, in, {random_tensor({1554, 96}, at::kFloat, 6).to(device)});
    results.push_back(y);
    if (first.empty()) first = results;
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], results[i])) << i;
  }
  at::set_num_threads(threads);
}

TEST(ResidualNorm, PlainTwinHasTheRightGradient) {
  const auto vector = [](uint64_t seed) { return random_tensor({6}, at::kDouble, seed); };
  expect_gradients_by_differences(
      [](const auto& in) {
        return used(ops::residual_norm_plain(in[0], in[1], in[2], in[3], in[4], kEps, dropout(0.3, at::kCPU)),
                    Used::kBoth);
      },
      {random_tensor({3, 6}, at::kDouble, 1), random_tensor({3, 6}, at::kDouble, 2), vector(3), vector(4),
       vector(5)});
}

}  // namespace
}  // namespace tightloop::testing
