#include "ops/pointwise/expert_rows.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "ops/compare.h"

namespace tightloop::testing {
namespace {

/// A few experts, of which the last has no choice.
at::Tensor random_choices(int64_t N, int64_t P, int64_t experts, at::Device device) {
  at::Tensor chosen = at::randint(0, experts - 1, {N, P}, at::kLong);
  return chosen.to(device);
}

class ExpertRowsOn : public OnDevice {};
ON_EVERY_DEVICE(ExpertRowsOn);

TEST_P(ExpertRowsOn, OrderSortsByExpertAndKeepsChoicesInTheirOrder) {
  for (const int64_t experts : {5, 300}) {
    const auto chosen = random_choices(41, 3, experts, device);
    const auto found = ops::expert_order(chosen, experts);
    const auto order = found.order_M.cpu(), place = found.place_NP.flatten().cpu(),
               by = chosen.flatten().cpu();
    for (int64_t row = 0; row < order.size(0); ++row) {
      const auto choice = order[row].item<int64_t>();
      EXPECT_EQ(place[choice].item<int64_t>(), row);
      if (row == 0) continue;
      const auto before = order[row - 1].item<int64_t>();
      const auto e = by[choice].item<int64_t>(), e_before = by[before].item<int64_t>();
      EXPECT_TRUE(e_before < e || (e_before == e && before < choice)) << "row " << row;
    }
  }
}

TEST_P(ExpertRowsOn, SpreadAndGatherAgreeWithTheirTwins) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const int64_t D : {8, 40, 96, 768, 1032, 4096})
      for (const auto& [N, P] : {std::pair<int64_t, int64_t>{0, 2}, {1, 1}, {7, 1}, {9, 2}, {5, 4}}) {
        SCOPED_TRACE(::testing::Message() << N << " x " << P << " rows of " << D << ' ' << dtype);
        const auto order = ops::expert_order(random_choices(N, P, 4, device), 4);
        const auto x = random_tensor({N, D}, dtype, 1).to(device);
        // The twins are given inputs on the CPU too.
        const auto on = [&](const at::Tensor& x) {
          return ops::ExpertOrder{order.order_M.to(x.device()), order.place_NP.to(x.device())};
        };
        expect_agreement([&](const auto& in) { return ops::spread_rows(in[0], on(in[0])); },
                         [&](const auto& in) { return ops::spread_rows_plain(in[0], on(in[0])); }, {x},
                         tolerance(dtype));
        expect_agreement(
            [&](const auto& in) { return ops::gather_rows(in[0], in[1], on(in[0])); },
            [&](const auto& in) { return ops::gather_rows_plain(in[0], in[1], on(in[0])); },
            {random_tensor({N * P, D}, dtype, 2).to(device), random_tensor({N, P}, at::kFloat, 3).to(device)},
            tolerance(dtype));
      }
}

TEST_P(ExpertRowsOn, OnlyIdleExpertsAreCleared) {
  const auto ends = at::tensor({0, 3, 3, 7, 7}, at::kInt).to(device);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto before = random_tensor({5, 8, 24}, dtype, 1).to(device);
    auto after = before.clone();
    ops::clear_idle_experts(after, ends);
    for (const int64_t e : {1, 3}) EXPECT_TRUE(at::equal(after[e], before[e])) << e;
    for (const int64_t e : {0, 2, 4}) EXPECT_EQ(after[e].abs().sum().item<double>(), 0) << e;
  }
}

TEST(ExpertRows, GradientsAreThoseOfDifferences) {
  const auto order = ops::expert_order(random_choices(3, 2, 4, at::kCPU), 4);
  expect_gradients_by_differences([&](const auto& in) { return ops::spread_rows(in[0], order); },
                                  {random_tensor({3, 4}, at::kDouble, 1)});
  expect_gradients_by_differences(
      [&](const auto& in) { return ops::gather_rows(in[0], in[1], order); },
      {random_tensor({6, 4}, at::kDouble, 2), random_tensor({3, 2}, at::kDouble, 3)});
}

TEST(ExpertRows, RefusesWhatDoesNotBelongTogether) {
  const auto order = ops::expert_order(random_choices(3, 2, 4, at::kCPU), 4);
  EXPECT_THROW(ops::spread_rows(random_tensor({4, 8}, at::kFloat, 1), order), c10::Error);
  EXPECT_THROW(
      ops::gather_rows(random_tensor({6, 8}, at::kFloat, 1), random_tensor({3, 1}, at::kFloat, 2), order),
      c10::Error);
}

}  // namespace
}  // namespace tightloop::testing
