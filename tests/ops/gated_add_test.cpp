#include "ops/pointwise/gated_add.h"

#include <gtest/gtest.h>

#include "ops/compare.h"

namespace tightloop::testing {
namespace {

class GatedAddOn : public OnDevice {};
ON_EVERY_DEVICE(GatedAddOn);

// x as the last heads of a wider tensor, and alone.
TEST_P(GatedAddOn, AgreesWithItsTwin) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const int64_t S : {16, 40, 64, 96, 128})
      for (const int64_t others : {0, 3}) {
        SCOPED_TRACE(::testing::Message() << "heads of " << S << " after " << others << ' ' << dtype);
        constexpr int64_t B = 2, T = 5, K = 3;
        const auto compute = [&](auto&& add) {
          return [&, add](const std::vector<at::Tensor>& in) {
            return add(in[0].narrow(2, others, K), in[1], in[2], 3.0);
          };
        };
        expect_agreement(
            compute(ops::gated_add), compute(ops::gated_add_plain),
            {random_tensor({B, T, others + K, S}, dtype, 1).to(device),
             random_tensor({B, T, K}, dtype, 2).to(device), random_tensor({B, T, K, S}, dtype, 3).to(device)},
            // Where torch computes it (a CPU, heads that the kernel does not take), each step is rounded.
            (has_kernel_for("tightloop::gated_add_forward", device) ? 1 : 3) * tolerance(dtype));
      }
}

TEST(GatedAdd, GradientsAreThoseOfDifferences) {
  expect_gradients_by_differences(
      [](const std::vector<at::Tensor>& in) { return ops::gated_add(in[0], in[1], in[2], 3.0); },
      {random_tensor({1, 2, 2, 4}, at::kDouble, 1), random_tensor({1, 2, 2}, at::kDouble, 2),
       random_tensor({1, 2, 2, 4}, at::kDouble, 3)});
}

TEST(GatedAdd, RefusesShapesThatDoNotBelongTogether) {
  const auto x = random_tensor({1, 2, 2, 4}, at::kFloat, 1);
  EXPECT_THROW(ops::gated_add(x, random_tensor({1, 2, 3}, at::kFloat, 2), x, 1), c10::Error);
}

}  // namespace
}  // namespace tightloop::testing
