#include "model/parts/experts.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/compare.h"
#include "ops/pointwise/swiglu.h"
#include "support.h"

namespace tightloop {
namespace {

using testing::random_tensor;
using testing::relative_error;

ModelConfig config_of(int64_t experts, int64_t per_token, bool normed = true) {
  ModelConfig config;
  config.family = "qwen3_moe", config.width = 16, config.heads = 2, config.expert_ffn = 24;
  config.experts = experts, config.experts_per_token = per_token, config.norm_topk = normed;
  config.resolve(50, 0);
  return config;
}

Experts experts_of(const ModelConfig& config, at::ScalarType dtype, at::Device device = at::kCPU) {
  const int64_t E = config.experts, D = config.width, X = config.expert_ffn;
  const auto make = [&](at::IntArrayRef shape, uint64_t seed) {
    return random_tensor(shape, dtype, seed, 0.3).to(device).requires_grad_();
  };
  return {.router_ED = make({E, D}, 1), .gate_up = make({E, 2 * X, D}, 2), .down = make({E, D, X}, 3)};
}

class OfExperts : public testing::OnDevice {};

TEST_P(OfExperts, GroupedProductsEqualTheLoop) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const int64_t per_token : {1, 2, 5}) {
      if (device.is_cuda() && dtype == at::kFloat) continue;
      const auto config = config_of(5, per_token, per_token != 2);
      const auto experts = experts_of(config, dtype, device);
      const auto x = random_tensor({3, 7, 16}, dtype, 4).to(device).requires_grad_();
      const auto routing = route(x, experts, config);
      const auto gradient = random_tensor({3, 7, 16}, dtype, 5).to(device);
      const std::vector<at::Tensor> inputs{x, experts.router_ED, experts.gate_up, experts.down};
      const auto grouped = run_experts(x, routing, experts), looped = run_experts_plain(x, routing, experts);
      EXPECT_LT(relative_error(grouped, looped), testing::tolerance(dtype));
      const auto a = torch::autograd::grad({grouped}, inputs, {gradient}, /*retain_graph=*/true);
      const auto b = torch::autograd::grad({looped}, inputs, {gradient});
      for (size_t i = 0; i < inputs.size(); ++i) {
        // One choice, whose weight is always 1: the router learns nothing, but for what rounding leaves.
        if (i == 1 && per_token == 1) {
          EXPECT_LT((a[i] - b[i]).abs().max().item<double>(), testing::tolerance(dtype)) << "router";
          continue;
        }
        EXPECT_LT(relative_error(a[i], b[i]), 3 * testing::tolerance(dtype)) << "input " << i;
      }
    }
}

TEST_P(OfExperts, AnIdleExpertHasAGradientOfZero) {
  const auto config = config_of(4, 2);
  for (const bool plain : {false, true}) {
    const auto experts = experts_of(config, at::kBFloat16, device);
    experts.router_ED.detach()[2].fill_(-100);  // x is positive: nobody chooses expert 2
    const auto x = random_tensor({30, 16}, at::kBFloat16, 4).abs().add(0.1).to(device);
    const auto routing = route(x, experts, config);
    ASSERT_EQ(routing.counts_E[2].item<int64_t>(), 0);
    (plain ? run_experts_plain(x, routing, experts) : run_experts(x, routing, experts)).sum().backward();
    for (const auto& weight : {experts.gate_up, experts.down}) {
      EXPECT_EQ(weight.grad()[2].abs().max().item<double>(), 0);
      EXPECT_GT(weight.grad()[1].abs().max().item<double>(), 0);
      EXPECT_TRUE(weight.grad().isfinite().all().item<bool>());
    }
  }
}
ON_EVERY_DEVICE(OfExperts);

TEST(Experts, AllTokensToOneExpertAreAllComputed) {
  const auto config = config_of(4, 1);
  const auto experts = experts_of(config, at::kFloat);
  experts.router_ED.detach().fill_(-1);
  experts.router_ED.detach()[3].fill_(1);
  const auto x = random_tensor({2, 50, 16}, at::kFloat, 4).abs();
  const auto routing = route(x, experts, config);
  EXPECT_EQ(routing.load_E[3].item<double>(), 1);
  const auto dense =
      at::linear(ops::swiglu(at::linear(x, experts.gate_up[3])), experts.down[3]);  // its weight is 1
  EXPECT_LT(relative_error(run_experts(x, routing, experts), dense), 1e-6);
}

TEST(Experts, WeightsSumToOneWhereTheyAreScaled) {
  const auto x = random_tensor({20, 16}, at::kFloat, 4);
  const auto scaled = config_of(6, 3), raw = config_of(6, 3, false);
  const auto experts = experts_of(scaled, at::kFloat);
  EXPECT_LT(relative_error(route(x, experts, scaled).weights_NP.sum(1), at::ones({20})), 1e-6);
  EXPECT_LT(route(x, experts, raw).weights_NP.sum(1).max().item<double>(), 1);
  EXPECT_NEAR(route(x, experts, raw).load_E.sum().item<double>(), 1, 1e-6);
}

TEST(Experts, SizesThatGroupedProductsDoNotTakeAreComputedAnyway) {
  auto config = config_of(3, 2);
  config.width = 18, config.expert_ffn = 7;
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto experts = experts_of(config, dtype);
    const auto x = random_tensor({9, 18}, dtype, 4);
    const auto routing = route(x, experts, config);
    EXPECT_TRUE(at::equal(run_experts(x, routing, experts), run_experts_plain(x, routing, experts)));
  }
}

TEST(Experts, TheSimpleBalanceIsItsFormulaAndPullsTowardsEvenLoads) {
  auto config = config_of(4, 1);
  config.balance = BalanceLoss::kSimple, config.balance_coef = 1;
  auto experts = experts_of(config, at::kFloat);
  const auto x = random_tensor({64, 16}, at::kFloat, 4).abs();
  auto routing = route(x, experts, config);
  const auto before = balance_loss(routing, config);
  EXPECT_NEAR(before.item<double>(), (routing.load_E - 0.25).pow(2).sum().item<double>(), 1e-6);
  ASSERT_GT(before.item<double>(), 0.01);
  for (int step = 0; step < 200; ++step) {
    balance_loss(route(x, experts, config), config).backward();
    auto& gradient = experts.router_ED.mutable_grad();
    experts.router_ED.detach().sub_(gradient, 0.3);
    gradient.zero_();
  }
  routing = route(x, experts, config);
  EXPECT_LT(balance_loss(routing, config).item<double>(), 0.5 * before.item<double>());
}

}  // namespace
}  // namespace tightloop
