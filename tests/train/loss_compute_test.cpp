#include "train/engine/loss_compute.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include "core/device.h"
#include "ops/compare.h"
#include "support.h"

namespace tightloop::testing {
namespace {

class LossComputeOn : public OnDevice {};
ON_EVERY_DEVICE(LossComputeOn);

struct SmallHead {
  Parameters parameters{3};
  at::Tensor weight = parameters.add("head", {5, 4}, {Init::kNormal, 0.5}, ParameterRole::kHead);
  TrainConfig config;
  at::Tensor out, targets;

  explicit SmallHead(at::Device device) {
    parameters.to(device, at::kFloat);
    out = at::randn({6, 4}, weight.options().requires_grad(false));
    targets = at::tensor({0, 1, 2, 3, 4, 0}, at::kLong).to(device);
  }
  LossCompute loss_compute(Optimizer* optimizer) const {
    return {[this](const at::Tensor& states) { return at::linear(states, weight); },
            [](const at::Tensor& scores, const at::Tensor& wanted) {
              return at::cross_entropy_loss(scores, wanted, {}, at::Reduction::Sum);
            },
            optimizer};
  }
};

TEST_P(LossComputeOn, GivesTheNormalizedLossAndNoGradientWithoutAnOptimizer) {
  const SmallHead s(device);
  const auto [loss, did_backward] = s.loss_compute(nullptr).compute_loss_tensor(s.out, s.targets, 3);
  EXPECT_FALSE(did_backward);
  EXPECT_FALSE(s.weight.grad().defined());
  EXPECT_FALSE(loss.requires_grad());
  const auto scores = at::linear(s.out, s.weight);
  EXPECT_LT(relative_error(loss, at::cross_entropy_loss(scores, s.targets, {}, at::Reduction::Sum) / 3),
            1e-6);
  EXPECT_EQ(s.loss_compute(nullptr)(s.out, s.targets, 3), loss.item<float>());
}

TEST_P(LossComputeOn, LearnsWithOne) {
  SmallHead s(device);
  Optimizer optimizer(s.parameters, s.config, ModelConfig{}, at::kFloat);
  const auto loss_compute = s.loss_compute(&optimizer);
  float first = 0, last = 0;
  for (int step = 0; step < 200; ++step) {
    const float loss = loss_compute(s.out, s.targets, 6);
    if (step == 0) first = loss;
    last = loss;
    optimizer.accumulate({true});
    optimizer.step({.lr_scale = 10}, 1);
  }
  EXPECT_LT(last, 0.9 * first);
}

TEST_P(LossComputeOn, NeverWaits) {
  SmallHead s(device);
  Optimizer optimizer(s.parameters, s.config, ModelConfig{}, at::kFloat);
  Device& own = tightloop::device(device.is_cpu() ? "cpu" : "cuda");
  const auto loss_compute = s.loss_compute(&optimizer);
  loss_compute.compute_loss_tensor(s.out, s.targets, 6);
  own.forbid_syncs(true);
  const auto result = loss_compute.compute_loss_tensor(s.out, s.targets, 6);
  own.forbid_syncs(false);
  EXPECT_TRUE(result.did_backward);
}

}  // namespace
}  // namespace tightloop::testing
