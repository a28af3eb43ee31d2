#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "bench/decode_cases.h"
#include "ops/compare.h"

namespace tightloop::testing {
namespace {

/// Of losses: value and gradients, where nothing but 1 flows into them.
void expect_same_loss(const OpCase& one) {
  const auto run = [&](const OpCase::Function& function, at::ScalarType dtype, at::Device device) {
    std::vector<at::Tensor> inputs, leaves;
    for (size_t i = 0; i < one.inputs.size(); ++i) {
      const bool fixed = std::ranges::count(one.fixed, i) > 0;
      inputs.push_back(fixed ? one.inputs[i].to(device)
                             : one.inputs[i].to(device, dtype).detach().clone().set_requires_grad(true));
      if (!fixed) leaves.push_back(inputs.back());
    }
    auto results = std::vector{function(inputs)};
    for (const auto& gradient : torch::autograd::grad({results[0]}, leaves)) results.push_back(gradient);
    return results;
  };
  const auto got = run(one.fused, at::kFloat, one.inputs[0].device()),
             wanted = run(one.plain, at::kDouble, at::kCPU);
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_LE(relative_error(got[i], wanted[i]), 2 * tolerance(at::kFloat)) << i;
}

/// The same numbers whatever ran before: the gradient of a sum's scale is one number, of 1 in 40 draws so
/// near to 0 that its terms' own roundings are above the tolerance.
class OpCasesOn : public OnDevice {
 protected:
  OpCasesOn() { at::manual_seed(1); }
};

TEST_P(OpCasesOn, AgreeWithTheirTwins) {
  const auto cases = op_cases(kTestSizes, at::kFloat, device);
  ASSERT_GT(cases.size(), 10u);
  for (const OpCase& one : cases) {
    SCOPED_TRACE(one.op);
    if (one.loss)
      expect_same_loss(one);
    else if (one.backward)
      expect_agreement(one.fused, one.plain, one.inputs, 2 * tolerance(at::kFloat), one.fixed);
  }
}

TEST_P(OpCasesOn, OfDecodingAgreeWithTheirTwins) {
  const at::NoGradGuard no_grad;
  const auto cases = decode_cases(kDecodeSizesTest, at::kFloat, device);
  ASSERT_GT(cases.size(), 5u);
  for (const OpCase& one : cases) {
    SCOPED_TRACE(one.op);
    EXPECT_GT(one.bytes, 0);
    EXPECT_LE(relative_error(one.fused(one.inputs), one.plain(one.inputs)), tolerance(at::kFloat));
  }
}

ON_EVERY_DEVICE(OpCasesOn);

TEST(OpCases, TwinsHaveTheRightGradients) {
  at::manual_seed(1);
  for (const OpCase& one : op_cases(kTestSizes, at::kDouble, at::kCPU)) {
    SCOPED_TRACE(one.op);
    if (!one.backward) continue;  // updates have tests of their own
    expect_gradients_by_differences(one.plain, one.inputs, one.fixed);
  }
}

TEST(OpCases, SayWhatTheyMove) {
  for (const OpCase& one : op_cases(kTestSizes, at::kFloat, at::kCPU)) {
    EXPECT_GT(one.bytes, 0) << one.op;
    EXPECT_FALSE(one.shape.empty()) << one.op;
  }
}

}  // namespace
}  // namespace tightloop::testing
