#include "ops/pointwise/activation.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <cmath>

#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using ops::ActivationKind;

constexpr ActivationKind kKinds[] = {ActivationKind::kRelu, ActivationKind::kReluSquare,
                                     ActivationKind::kGelu, ActivationKind::kGeluTanh};

ops::Dropout dropout(double share, at::Device device) {
  return {share, at::full({}, 0x2468ace, at::TensorOptions(at::kLong).device(device)), 9};
}

class ActivationOn : public OnDevice {
 protected:
  void compare(int64_t rows, int64_t D, at::ScalarType dtype, ActivationKind kind, double share) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << D << ' ' << dtype << " kind "
                                      << static_cast<int>(kind) << " dropout " << share << ' ' << device);
    expect_agreement(
        [&](const auto& in) { return ops::activation(in[0], in[1], kind, dropout(share, in[0].device())); },
        [&](const auto& in) {
          return ops::activation_plain(in[0], in[1], kind, dropout(share, in[0].device()));
        },
        {random_tensor({rows, D}, dtype, 1).to(device), random_tensor({D}, dtype, 2).to(device)},
        tolerance(dtype));
  }
};
ON_EVERY_DEVICE(ActivationOn);

TEST_P(ActivationOn, AgreesWithThePlainTwin) {
  for (const auto kind : kKinds)
    for (const double share : {0.0, 0.3})
      for (const int64_t D : {4, 128, 132, 300}) compare(37, D, at::kFloat, kind, share);
}

TEST_P(ActivationOn, AgreesIn16Bits) {
  if (!has_kernel_for("tightloop::activation_forward", device))
    GTEST_SKIP() << "torch's passes round each step";
  for (const auto kind : kKinds)
    for (const double share : {0.0, 0.3})
      for (const int64_t D : {8, 256, 264}) compare(19, D, at::kBFloat16, kind, share);
}

TEST_P(ActivationOn, NeedsNoBias) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    if (dtype != at::kFloat && !has_kernel_for("tightloop::activation_forward", device)) continue;
    for (const auto kind : kKinds)
      for (const int64_t D : {7, 128})
        expect_agreement([&](const auto& in) { return ops::activation(in[0], {}, kind); },
                         [&](const auto& in) { return ops::activation_plain(in[0], {}, kind); },
                         {random_tensor({21, D}, dtype, 1).to(device)}, tolerance(dtype));
  }
}

TEST_P(ActivationOn, TakesManyRowsAndOddOnes) {
  compare(6000, 8, at::kFloat, ActivationKind::kGelu, 0.1);
  compare(5, 7, at::kFloat, ActivationKind::kRelu, 0.1);
  compare(0, 8, at::kFloat, ActivationKind::kRelu, 0.1);
  compare(1, 12, at::kFloat, ActivationKind::kGeluTanh, 0);
  compare(1, 8, at::kFloat, ActivationKind::kGelu, 0.5);
}

TEST_P(ActivationOn, WhatIsNoNumberStaysNone) {
  for (const auto kind : kKinds) {
    auto x = random_tensor({3, 16}, at::kFloat, 1).to(device);
    x[1][5] = NAN;
    const auto y = ops::activation(x, {}, kind);
    EXPECT_EQ(y.isnan().sum().item<int64_t>(), 1) << static_cast<int>(kind);
    EXPECT_TRUE(y[1][5].isnan().item<bool>());
  }
}

TEST_P(ActivationOn, GivesTheSameBitsAgain) {
  std::vector<at::Tensor> first;
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 3, 3}) {
    at::set_num_threads(count);
    const auto leaf = [&](at::IntArrayRef shape, uint64_t seed) {
      return random_tensor(shape, at::kFloat, seed).to(device).requires_grad_();
    };
    const at::Tensor x = leaf({777, 96}, 1), bias = leaf({96}, 2);
    const auto y = ops::activation(x, bias, ActivationKind::kGeluTanh, dropout(0.2, device));
    auto results =
        torch::autograd::grad({y}, {x, bias}, {random_tensor({777, 96}, at::kFloat, 3).to(device)});
    results.push_back(y);
    if (first.empty()) first = results;
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], results[i])) << i;
  }
  at::set_num_threads(threads);
}

TEST(Activation, PlainTwinHasTheRightGradient) {
  for (const auto kind : kKinds)
    expect_gradients_by_differences(
        [&](const auto& in) { return ops::activation_plain(in[0], in[1], kind, dropout(0.3, at::kCPU)); },
        {random_tensor({3, 5}, at::kDouble, 1), random_tensor({5}, at::kDouble, 2)});
}

}  // namespace
}  // namespace tightloop::testing
