#include "ops/optim/adamw.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>

#include "ops/compare.h"
#include "ops/optim/gradient_norm.h"

namespace tightloop::testing {
namespace {

using at::Tensor;
using ops::AdamwTensors;

constexpr ops::AdamwBetas kBetas{0.9, 0.95, 1e-8};

at::Tensor control(double lr, double divisor, int64_t count, bool skip, at::Device device) {
  return at::tensor({static_cast<float>(lr), static_cast<float>(divisor), static_cast<float>(count),
                     skip ? 1.0f : 0.0f})
      .to(device);
}

AdamwTensors make(const std::vector<int64_t>& sizes, at::ScalarType gradients, at::ScalarType values,
                  at::Device device) {
  AdamwTensors made;
  for (size_t i = 0; i < sizes.size(); ++i) {
    made.masters.push_back(random_tensor({sizes[i]}, at::kFloat, i).to(device));
    made.first.push_back(at::zeros_like(made.masters[i]));
    made.second.push_back(at::zeros_like(made.masters[i]));
    made.gradients.push_back(random_tensor({sizes[i]}, gradients, 100 + i).to(device));
    made.values.push_back(values == at::kFloat ? made.masters[i] : made.masters[i].to(values));
    made.rate.push_back(i % 2 ? 1.0 : 0.5);
    made.decay.push_back(i % 3 ? 0.0 : 0.1);
  }
  return made;
}

AdamwTensors in_double(const AdamwTensors& from) {
  AdamwTensors made = from;
  for (auto* list : {&made.masters, &made.first, &made.second, &made.gradients})
    for (Tensor& tensor : *list)
      tensor = tensor.to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  made.values = made.masters;
  return made;
}

class AdamwOn : public OnDevice {};
ON_EVERY_DEVICE(AdamwOn);

TEST_P(AdamwOn, AgreesWithThePlainTwin) {
  // Sizes around a vector, a piece of a block, and more than one piece.
  const std::vector<int64_t> sizes{1, 3, 4, 5, 255, 1 << 14, (1 << 14) + 1, 40001};
  for (const auto gradients : {at::kFloat, at::kBFloat16})
    for (const auto values : {at::kFloat, at::kBFloat16}) {
      AdamwTensors fused = make(sizes, gradients, values, device), plain = in_double(fused);
      for (int64_t count = 1; count <= 5; ++count) {
        for (size_t i = 0; i < sizes.size(); ++i) {
          fused.gradients[i].copy_(random_tensor({sizes[i]}, gradients, 1000 * count + i));
          plain.gradients[i].copy_(fused.gradients[i].to(at::kCPU));
        }
        ops::adamw_(fused, kBetas, control(1e-2, 3, count, false, device));
        ops::adamw_plain_(plain, kBetas, control(1e-2, 3, count, false, at::kCPU));
      }
      for (size_t i = 0; i < sizes.size(); ++i) {
        SCOPED_TRACE(::testing::Message() << sizes[i] << ' ' << gradients << ' ' << values << ' ' << device);
        EXPECT_LT(relative_error(fused.masters[i], plain.masters[i]), 1e-6);
        EXPECT_LT(relative_error(fused.first[i], plain.first[i]), 1e-6);
        EXPECT_LT(relative_error(fused.second[i], plain.second[i]), 1e-6);
        EXPECT_TRUE(at::equal(fused.values[i], fused.masters[i].to(values)));
      }
    }
}

TEST_P(AdamwOn, TakesMoreTensorsThanATableHolds) {
  const std::vector<int64_t> sizes(1030, 3);
  AdamwTensors fused = make(sizes, at::kFloat, at::kFloat, device), plain = in_double(fused);
  ops::adamw_(fused, kBetas, control(1e-2, 1, 1, false, device));
  ops::adamw_plain_(plain, kBetas, control(1e-2, 1, 1, false, at::kCPU));
  for (size_t i = 0; i < sizes.size(); ++i)
    ASSERT_LT(relative_error(fused.masters[i], plain.masters[i]), 1e-6) << i;
}

TEST_P(AdamwOn, ASkippedUpdateChangesNothing) {
  AdamwTensors fused = make({100, 7}, at::kFloat, at::kBFloat16, device);
  fused.gradients[0].fill_(std::numeric_limits<float>::quiet_NaN());
  const AdamwTensors before = in_double(fused);
  ops::adamw_(fused, kBetas, control(1e-2, 1, 1, true, device));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(at::equal(fused.masters[i].to(at::kCPU, at::kDouble), before.masters[i]));
    EXPECT_TRUE(at::equal(fused.second[i].to(at::kCPU, at::kDouble), before.second[i]));
  }
}

TEST_P(AdamwOn, TensorsThatStartAnywhereAreTaken) {
  AdamwTensors fused = make({64}, at::kFloat, at::kFloat, device);
  fused.gradients[0] = random_tensor({65}, at::kFloat, 3).to(device).slice(0, 1);
  AdamwTensors plain = in_double(fused);
  ops::adamw_(fused, kBetas, control(1e-2, 1, 1, false, device));
  ops::adamw_plain_(plain, kBetas, control(1e-2, 1, 1, false, at::kCPU));
  EXPECT_LT(relative_error(fused.masters[0], plain.masters[0]), 1e-6);
}

class GradientNormOn : public OnDevice {};
ON_EVERY_DEVICE(GradientNormOn);

TEST_P(GradientNormOn, IsThatOfAllTensorsTogether) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    std::vector<Tensor> tensors;
    for (const int64_t size : {1, 3, 8, 255, 1 << 14, (1 << 14) + 9, 100000})
      tensors.push_back(random_tensor({size}, dtype, size).to(device));
    for (int i = 0; i < 600; ++i) tensors.push_back(random_tensor({2}, dtype, i).to(device));
    const double expected = ops::gradient_norm_plain(tensors).item<double>();
    const Tensor norm = ops::gradient_norm(tensors);
    EXPECT_NEAR(norm.item<double>(), expected, 1e-6 * expected);
    EXPECT_TRUE(at::equal(ops::gradient_norm(tensors), norm)) << "the same bits again";
    tensors[4][77].fill_(std::numeric_limits<float>::infinity());
    EXPECT_FALSE(std::isfinite(ops::gradient_norm(tensors).item<double>()));
  }
}

}  // namespace
}  // namespace tightloop::testing
