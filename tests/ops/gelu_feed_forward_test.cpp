#include "ops/pointwise/gelu_feed_forward.h"

#include <gtest/gtest.h>

#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using Tensors = std::vector<at::Tensor>;

class GeluFeedForwardOn : public OnDevice {};
ON_EVERY_DEVICE(GeluFeedForwardOn);

TEST_P(GeluFeedForwardOn, AgreesWithItsTwin) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const auto& [rows, D, F] : {std::tuple{6, 16, 64}, {34, 64, 256}, {128, 96, 384}, {2, 8, 24}}) {
      if (dtype == at::kHalf && device.is_cpu()) continue;
      SCOPED_TRACE(::testing::Message() << rows << " x " << D << " x " << F << ' ' << dtype);
      // Where torch multiplies, the product is rounded before gelu is taken.
      expect_agreement(
          [](const Tensors& in) { return ops::gelu_feed_forward(in[0], in[1], in[2], in[3]); },
          [](const Tensors& in) { return ops::gelu_feed_forward_plain(in[0], in[1], in[2], in[3]); },
          {random_tensor({2, rows / 2, D}, dtype, 1).to(device),
           random_tensor({F, D}, dtype, 2, 0.2).to(device), random_tensor({F}, dtype, 3).to(device),
           random_tensor({D, F}, dtype, 4, 0.2).to(device)},
          3 * tolerance(dtype));
    }
}

TEST(GeluFeedForward, GradientsAreThoseOfDifferences) {
  expect_gradients_by_differences(
      [](const Tensors& in) { return ops::gelu_feed_forward(in[0], in[1], in[2], in[3]); },
      {random_tensor({1, 2, 3}, at::kDouble, 1), random_tensor({4, 3}, at::kDouble, 2),
       random_tensor({4}, at::kDouble, 3), random_tensor({3, 4}, at::kDouble, 4)});
}

}  // namespace
}  // namespace tightloop::testing
