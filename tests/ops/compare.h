#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "ops/config.h"

namespace tightloop::testing {

/// Largest difference over largest magnitude: what "relative error" means in docs/numerics.md.
double relative_error(const at::Tensor& got, const at::Tensor& wanted);

/// Normal numbers that are the same on every machine and call: a function of the shape and the seed.
at::Tensor random_tensor(at::IntArrayRef shape, at::ScalarType dtype, uint64_t seed, double scale = 1.0);

/// A test that runs on the CPU and on the GPU, and skips the GPU where there is none.
class OnDevice : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override;
  at::Device device = at::kCPU;
};

#define ON_EVERY_DEVICE(suite)                                            \
  INSTANTIATE_TEST_SUITE_P(Each, suite, ::testing::Values("cpu", "cuda"), \
                           [](const auto& info) { return std::string(info.param); })

/// Whether CUDA's kernels run as fibers in the place of the CPU's (tests_kernels).
#ifdef TIGHTLOOP_FIBERS
constexpr bool kFibers = true;
#else
constexpr bool kFibers = false;
#endif

/// The tolerances of docs/numerics.md: one rounding of the dtype.
double tolerance(at::ScalarType dtype);

/// Whether an operator has a kernel for a device.
bool has_kernel_for(const char* name, at::Device device);

using Function = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

/// Values and gradients of `fused` on tensors of some dtype and device against `plain` on the same values in
/// fp64 on the CPU. The gradient that flows in is random, so every output element counts. Undefined inputs do
/// not occur; inputs that are not floating point, or listed in `fixed`, get no gradient.
void expect_agreement(const Function& fused, const Function& plain, const std::vector<at::Tensor>& inputs,
                      double tolerance, const std::vector<size_t>& fixed = {});

/// Gradients of a function of fp64 tensors against central differences.
void expect_gradients_by_differences(const Function& function, const std::vector<at::Tensor>& inputs,
                                     const std::vector<size_t>& fixed = {});

/// Turns the plain twins on for a scope.
class PlainScope {
 public:
  PlainScope() { ops::use_plain(true); }
  ~PlainScope() { ops::use_plain(false); }
};

}  // namespace tightloop::testing
