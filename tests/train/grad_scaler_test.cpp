#include "train/engine/grad_scaler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "core/files.h"
#include "ops/compare.h"
#include "support.h"
#include "train/engine/autocast.h"

namespace tightloop::testing {
namespace {

class GradScalerOn : public OnDevice {};
ON_EVERY_DEVICE(GradScalerOn);

TEST_P(GradScalerOn, FollowsTorchThroughPlantedOverflows) {
  const auto golden = nlohmann::json::parse(read_file(testing::source_folder() / "tests/golden/scaler.json"));
  GradScaler scaler(device, {.initial = 1024, .growth_interval = 3});
  const auto factors = at::arange(1, 5, at::TensorOptions(at::kFloat).device(device));
  at::Tensor weight = at::zeros({4}, factors.options());
  bool grew = false, backed_off = false;
  double last = 1024;
  for (int64_t step = 1; step <= 200; ++step) {
    auto leaf = weight.detach().clone().requires_grad_();
    scaler.scale((leaf * factors).sum()).backward();
    std::vector<at::Tensor> gradients{leaf.grad()};
    if (step % 7 == 0) gradients[0][1].fill_(std::numeric_limits<float>::infinity());
    scaler.unscale_(gradients);
    at::Tensor next;
    scaler.step([&](const at::Tensor& found_inf) {
      next = at::where(found_inf != 0, weight, weight - gradients[0]);
    });
    const bool skipped = (next == weight).all().item<bool>();
    weight = next;
    scaler.update();
    const double scale = scaler.factor().item<double>();
    ASSERT_EQ(scale, golden["scales"][step - 1].get<double>()) << step;
    ASSERT_EQ(skipped, golden["skipped"][step - 1].get<bool>()) << step;
    ASSERT_EQ(weight[0].item<double>(), golden["weights"][step - 1].get<double>()) << step;
    grew |= scale > last, backed_off |= scale < last;
    last = scale;
  }
  EXPECT_TRUE(grew && backed_off);
}

TEST(Autocast, HoldsWithinItsScopeAlone) {
  const auto a = at::ones({4, 4});
  {
    const Autocast outer(at::kCPU, at::kBFloat16);
    EXPECT_EQ(at::matmul(a, a).scalar_type(), at::kBFloat16);
    {
      const Autocast inner(at::kCPU, at::kHalf);
      EXPECT_EQ(at::matmul(a, a).scalar_type(), at::kHalf);
    }
    EXPECT_EQ(at::matmul(a, a).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(at::matmul(a, a).scalar_type(), at::kFloat);
}

TEST(GradScaler, IsUnscaledOnceBeforeAStep) {
  GradScaler scaler(at::kCPU, {.initial = 1024});
  const auto nothing = [](const at::Tensor&) {};
  testing::error_of(ExitCode::kUsage, [&] { scaler.step(nothing); });
  const std::vector<at::Tensor> gradients{at::full({2}, 1024.0),
                                          at::Tensor()};  // one had no part in the loss
  scaler.unscale_(gradients);
  EXPECT_EQ(gradients[0][0].item<double>(), 1);
  testing::error_of(ExitCode::kUsage, [&] { scaler.unscale_(gradients); });
  scaler.step(nothing);
  scaler.update();
  testing::error_of(ExitCode::kUsage, [&] { scaler.step(nothing); });
}

}  // namespace
}  // namespace tightloop::testing
