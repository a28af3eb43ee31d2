#include "ops/pointwise/gelu_linear.h"

#include <gtest/gtest.h>

#include "ops/compare.h"

namespace tightloop::testing {
namespace {

class GeluLinearOn : public OnDevice {};
ON_EVERY_DEVICE(GeluLinearOn);

TEST_P(GeluLinearOn, AgreesWithItsTwin) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const auto& [rows, D, F] : {std::tuple{6, 16, 64}, {34, 64, 256}, {128, 96, 384}}) {
      if (dtype == at::kHalf && device.is_cpu()) continue;
      SCOPED_TRACE(::testing::Message() << rows << " x " << D << " x " << F << ' ' << dtype);
      // Where torch multiplies, the product is rounded before gelu is taken.
      expect_agreement(
          [](const auto& in) { return ops::gelu_linear(in[0], in[1], in[2]); },
          [](const auto& in) { return ops::gelu_linear_plain(in[0], in[1], in[2]); },
          {random_tensor({2, rows / 2, D}, dtype, 1).to(device),
           random_tensor({F, D}, dtype, 2, 0.2).to(device), random_tensor({F}, dtype, 3).to(device)},
          3 * tolerance(dtype));
    }
}

TEST(GeluLinear, GradientsAreThoseOfDifferences) {
  expect_gradients_by_differences(
      [](const std::vector<at::Tensor>& in) { return ops::gelu_linear(in[0], in[1], in[2]); },
      {random_tensor({1, 2, 3}, at::kDouble, 1), random_tensor({4, 3}, at::kDouble, 2),
       random_tensor({4}, at::kDouble, 3)});
}

}  // namespace
}  // namespace tightloop::testing
