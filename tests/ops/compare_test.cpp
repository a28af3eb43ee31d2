#include "ops/compare.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/random.h"

namespace tightloop::testing {

using at::Tensor;

double relative_error(const Tensor& got, const Tensor& wanted) {
  EXPECT_EQ(got.sizes(), wanted.sizes());
  if (got.numel() == 0) return 0;
  const Tensor a = got.detach().to(at::kCPU, at::kDouble), b = wanted.detach().to(at::kCPU, at::kDouble);
  const double difference = (a - b).abs().max().item<double>(), largest = b.abs().max().item<double>();
  return largest > 0 ? difference / largest : difference;
}

Tensor random_tensor(at::IntArrayRef shape, at::ScalarType dtype, uint64_t seed, double scale) {
  Tensor values = at::empty(shape, at::kDouble);
  Random random(seed);
  double* data = values.mutable_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i)
    data[i] = scale * std::sqrt(-2 * std::log(1 - random.uniform())) *
              std::cos(2 * std::numbers::pi * random.uniform());
  return values.to(dtype);
}

void OnDevice::SetUp() {
  if (std::string(GetParam()) == "cpu") return;
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  device = at::Device(at::kCUDA, 0);
}

double tolerance(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 1e-12;
    case at::kFloat:
      return 2e-6;  // sums of up to some thousand terms
    case at::kHalf:
      return 1.1 * 0x1p-11;  // one rounding, and a little for fp32 before it
    default:
      return 1.1 * 0x1p-8;
  }
}

bool has_kernel_for(const char* name, at::Device device) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  return op.hasKernelForDispatchKey(device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU);
}

namespace {

bool differentiable(const Tensor& x, size_t index, const std::vector<size_t>& fixed) {
  return x.is_floating_point() && std::find(fixed.begin(), fixed.end(), index) == fixed.end();
}

/// Output first, then the gradients of the differentiable inputs.
std::vector<Tensor> values_and_gradients(const Function& function, std::vector<Tensor> inputs,
                                         const Tensor& weights, const std::vector<size_t>& fixed) {
  std::vector<Tensor> leaves;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (differentiable(inputs[i], i, fixed)) leaves.push_back(inputs[i].requires_grad_());
  Tensor y = function(inputs);
  const Tensor flow =
      (weights.defined() ? weights : random_tensor(y.sizes(), at::kDouble, 99)).to(y.options());
  auto gradients = torch::autograd::grad({y}, leaves, {flow});
  gradients.insert(gradients.begin(), y);
  return gradients;
}

}  // namespace

void expect_agreement(const Function& fused, const Function& plain, const std::vector<Tensor>& inputs,
                      double tolerance, const std::vector<size_t>& fixed) {
  std::vector<Tensor> ours, exact;
  for (size_t i = 0; i < inputs.size(); ++i) {
    // Strides stay as they are: views are part of what is tested.
    ours.push_back(inputs[i].detach());
    const bool real = inputs[i].is_floating_point();
    exact.push_back(real ? inputs[i].detach().to(at::kCPU, at::kDouble) : inputs[i].to(at::kCPU));
  }
  const auto got = values_and_gradients(fused, ours, {}, fixed);
  // The gradient that flows in is rounded to the output's dtype for both.
  const Tensor flow = random_tensor(got[0].sizes(), at::kDouble, 99).to(got[0].scalar_type()).to(at::kDouble);
  const auto wanted = values_and_gradients(plain, exact, flow, fixed);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_LE(relative_error(got[i], wanted[i]), tolerance)
        << (i == 0 ? "the output" : "the gradient of differentiable input " + std::to_string(i - 1));
    if (i > 0) {
      EXPECT_FALSE(got[i].isnan().any().item<bool>());
    }
  }
}

void expect_gradients_by_differences(const Function& function, const std::vector<Tensor>& inputs,
                                     const std::vector<size_t>& fixed) {
  std::vector<Tensor> leaves;
  for (const auto& x : inputs) leaves.push_back(x.detach().clone());
  const auto found = values_and_gradients(function, leaves, {}, fixed);
  const Tensor flow = random_tensor(found[0].sizes(), at::kDouble, 99);
  size_t slot = 1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!differentiable(inputs[i], i, fixed)) continue;
    Tensor numeric = at::zeros_like(inputs[i], at::MemoryFormat::Contiguous);
    const double step = 1e-6;
    for (int64_t element = 0; element < inputs[i].numel(); ++element) {
      double sides[2];
      for (const int side : {0, 1}) {
        auto moved = inputs;
        moved[i] = inputs[i].detach().clone(at::MemoryFormat::Contiguous);
        moved[i].mutable_data_ptr<double>()[element] += side ? step : -step;
        sides[side] = (function(moved).detach() * flow).sum().item<double>();
      }
      numeric.mutable_data_ptr<double>()[element] = (sides[1] - sides[0]) / (2 * step);
    }
    EXPECT_LE(relative_error(found[slot], numeric), 1e-7) << "input " << i;
    ++slot;
  }
}

// The comparison itself must be able to fail.
TEST(Compare, NoticesAWrongValueAndAWrongGradient) {
  const auto square = [](const std::vector<Tensor>& x) { return x[0] * x[0]; };
  const auto nearly = [](const std::vector<Tensor>& x) { return x[0] * x[0] * 1.001; };
  const auto half_gradient = [](const std::vector<Tensor>& x) { return x[0] * x[0].detach(); };
  const std::vector<Tensor> input{random_tensor({5}, at::kFloat, 1)};
  expect_agreement(square, square, input, 1e-6);
  EXPECT_GT(relative_error(nearly(input), square(input)), 5e-4);
  const auto wrong = values_and_gradients(half_gradient, {input[0].clone()}, {}, {});
  const auto right = values_and_gradients(square, {input[0].clone()}, {}, {});
  EXPECT_GT(relative_error(wrong[1], right[1]), 0.1);
  EXPECT_TRUE(std::isnan(relative_error(input[0] / 0.0 - input[0] / 0.0, input[0])));
}

}  // namespace tightloop::testing
