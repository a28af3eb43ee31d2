#include "ops/product.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>

#include "ops/compare.h"
#include "ops/linear.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

class ProductOn : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped() && !has_kernel_for("tightloop::product", device)) GTEST_SKIP() << "products by cuBLASLt";
    at::globalContext().setDeterministicAlgorithms(false, false);  // trainings before may have asked for them
  }
  void TearDown() override { ops::use_autotune(false); }
  Tensor some(at::IntArrayRef shape, at::ScalarType dtype, uint64_t seed) const {
    return random_tensor(shape, dtype, seed).to(device);
  }
};
ON_EVERY_DEVICE(ProductOn);

TEST_P(ProductOn, IsTheProductHoweverFactorsLie) {
  for (const bool tuned : {false, true}) {
    ops::use_autotune(tuned);
    for (const auto dtype : {at::kBFloat16, at::kHalf})
      for (const auto& [M, K, N] : {std::tuple{8, 16, 24}, {40, 8, 8}, {1024, 768, 1024}})
        for (const bool turn_a : {false, true})
          for (const bool turn_b : {false, true}) {
            SCOPED_TRACE(::testing::Message()
                         << M << ' ' << K << ' ' << N << ' ' << dtype << turn_a << turn_b);
            const auto a = turn_a ? some({K, M}, dtype, 1).t() : some({M, K}, dtype, 1);
            const auto b = turn_b ? some({N, K}, dtype, 2).t() : some({K, N}, dtype, 2);
            const auto bias = some({N}, dtype, 3);
            const auto wanted = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
            EXPECT_LE(relative_error(ops::product(a, b, dtype), wanted), tolerance(dtype));
            EXPECT_LE(
                relative_error(ops::product(a, b, dtype, {.bias = bias}), wanted + bias.to(at::kDouble)),
                tolerance(dtype));
          }
  }
}

TEST_P(ProductOn, TakesPartsOfMatrices) {
  const auto a = some({64, 48}, at::kBFloat16, 1).narrow(1, 8, 32), b = some({32, 48}, at::kBFloat16, 2);
  EXPECT_LE(relative_error(ops::product(a, b.narrow(1, 8, 24), at::kBFloat16),
                           at::matmul(a.to(at::kDouble), b.narrow(1, 8, 24).to(at::kDouble))),
            tolerance(at::kBFloat16));
}

TEST_P(ProductOn, AppliesGeluAndItsSlope) {
  const auto a = some({64, 32}, at::kBFloat16, 1), b = some({32, 128}, at::kBFloat16, 2) / 8,
             bias = some({128}, at::kBFloat16, 3);
  Tensor before = at::empty_like(some({64, 128}, at::kBFloat16, 4));
  const auto y =
      ops::product(a, b, at::kBFloat16, {.bias = bias, .epilogue = ops::Epilogue::kGelu, .aux = before});
  ASSERT_TRUE(y.defined());
  const auto z = at::matmul(a.to(at::kDouble), b.to(at::kDouble)) + bias.to(at::kDouble);
  EXPECT_LE(relative_error(before, z), tolerance(at::kBFloat16));
  EXPECT_LE(relative_error(y, at::gelu(z, "tanh")), tolerance(at::kBFloat16));
  const auto slope =
      ops::product(a, b, at::kBFloat16, {.epilogue = ops::Epilogue::kGeluSlope, .aux = before});
  ASSERT_TRUE(slope.defined());
  auto at_before = before.to(at::kDouble).set_requires_grad(true);
  at::gelu(at_before, "tanh").sum().backward();
  // The library approximates the tanh in it.
  EXPECT_LE(relative_error(slope, at::matmul(a.to(at::kDouble), b.to(at::kDouble)) * at_before.grad()),
            2 * tolerance(at::kBFloat16));
}

TEST_P(ProductOn, LinearHasTheGradientsOfTorchs) {
  ops::use_autotune(true);
  constexpr int64_t kRows = 4096, kIn = 1024, kOut = 1024;
  const auto x = some({2, kRows / 2, kIn}, at::kBFloat16, 1), w = some({kOut, kIn}, at::kBFloat16, 2),
             bias = some({kOut}, at::kBFloat16, 3);
  ASSERT_TRUE(ops::product_takes(x, w));
  expect_agreement([](const auto& in) { return ops::linear(in[0], in[1], in[2]); },
                   [](const auto& in) { return at::matmul(in[0], in[1].t()) + in[2]; }, {x, w, bias},
                   tolerance(at::kBFloat16));
}

TEST_P(ProductOn, NothingIsTunedWhereBitsMustRepeat) {
  ops::use_autotune(true);
  EXPECT_TRUE(ops::autotune());
  at::globalContext().setDeterministicAlgorithms(true, false);
  EXPECT_FALSE(ops::autotune());
  at::globalContext().setDeterministicAlgorithms(false, false);
}

}  // namespace
}  // namespace tightloop::testing
