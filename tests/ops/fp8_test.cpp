#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/compare.h"
#include "ops/fp8/fp8_cast.h"
#include "ops/fp8/fp8_linear.h"
#include "ops/linear.h"
#include "ops/loss/fused_head.h"

namespace tightloop::testing {
namespace {

using at::Tensor;
using ops::Fp8Format;

/// Bits, since NaN differs from itself.
Tensor bits(const Tensor& x) { return x.view(at::kByte).cpu(); }

class Fp8On : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped() && !has_kernel_for("tightloop::fp8_cast", device))
      GTEST_SKIP() << "no kernel for this device";
  }
};
ON_EVERY_DEVICE(Fp8On);

TEST_P(Fp8On, CastsToTheBitsOfItsTwin) {
  for (const auto dtype : {at::kBFloat16, at::kHalf})
    for (const auto format : {Fp8Format::kE4m3, Fp8Format::kE5m2})
      for (const auto& [rows, columns] : {std::pair{16, 16}, {48, 144}, {80, 208}, {256, 128}, {16, 1040}}) {
        SCOPED_TRACE(::testing::Message() << rows << " x " << columns << ' ' << dtype);
        const auto x = random_tensor({rows, columns}, dtype, 3, 0.02).to(device);
        const auto most = ops::absolute_max(x);
        EXPECT_EQ(most.item<float>(), x.abs().max().item<float>());
        const auto got = ops::fp8_cast(x, most, format, true, true);
        const auto wanted = ops::fp8_cast_plain(x, most, format, true, true);
        EXPECT_TRUE(at::equal(bits(got.rows), bits(wanted.rows)));
        EXPECT_TRUE(at::equal(bits(got.columns), bits(wanted.columns)));
        EXPECT_FLOAT_EQ(got.scale.item<float>(), wanted.scale.item<float>());  // ATen divides by multiplying
        EXPECT_TRUE(at::equal(bits(got.columns), bits(got.rows).view({rows, columns}).t().contiguous()));
        const auto only = ops::fp8_cast(x, most, format, false, true);
        EXPECT_FALSE(only.rows.defined());
        EXPECT_TRUE(at::equal(bits(only.columns), bits(wanted.columns)));
      }
}

TEST_P(Fp8On, WhatIsNotFiniteStaysSo) {
  for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    auto x = random_tensor({32, 48}, at::kBFloat16, 4);
    x[3][5] = bad;
    x = x.to(device);
    const auto cast = ops::fp8_cast(x, ops::absolute_max(x), Fp8Format::kE4m3, true, true);
    EXPECT_TRUE(cast.rows.cpu().to(at::kFloat)[3][5].isnan().item<bool>()) << bad;
    EXPECT_TRUE(cast.columns.cpu().to(at::kFloat)[5][3].isnan().item<bool>()) << bad;
  }
  const auto tiny = at::full({16, 16}, 1e-35, at::TensorOptions(at::kBFloat16).device(device));
  const auto vanished = ops::fp8_cast(tiny, ops::absolute_max(tiny), Fp8Format::kE5m2, true, false);
  EXPECT_EQ(vanished.rows.to(at::kFloat).abs().max().item<float>(), 0) << "not NaN";
  const auto nothing = at::zeros({16, 16}, at::TensorOptions(at::kBFloat16).device(device));
  const auto cast = ops::fp8_cast(nothing, ops::absolute_max(nothing), Fp8Format::kE4m3, true, false);
  EXPECT_EQ(cast.scale.item<float>(), 1);
  EXPECT_EQ(cast.rows.to(at::kFloat).abs().max().item<float>(), 0);
}

/// x as fp8 holds it, in fp64.
Tensor rounded(const Tensor& x, Fp8Format format) {
  const auto flat = x.detach().reshape({-1, x.size(-1)});
  const auto cast = ops::fp8_cast_plain(flat, ops::absolute_max_plain(flat), format, true, false);
  return (cast.rows.to(at::kFloat).to(at::kDouble) * cast.scale.to(at::kDouble)).view(x.sizes());
}

TEST_P(Fp8On, ProductsAreThoseOfRoundedFactors) {
  if (device.is_cpu()) GTEST_SKIP() << "products of fp8 are for GPUs";
  ops::use_fp8(true);
  for (const auto& [bias, input] :
       {std::pair{false, ops::Input::kOwn}, {true, ops::Input::kOwn}, {false, ops::Input::kKept}}) {
    const int64_t rows = 96, in = 160, out = 256;
    auto x = random_tensor({2, rows / 2, in}, at::kBFloat16, 1).to(device).set_requires_grad(true);
    auto w = random_tensor({out, in}, at::kBFloat16, 2, 0.1).to(device).set_requires_grad(true);
    auto b = random_tensor({out}, at::kBFloat16, 3).to(device).set_requires_grad(true);
    ASSERT_TRUE(ops::fp8_takes(x, w));
    const auto y = ops::linear(x, w, bias ? std::optional(b) : std::nullopt, input);
    const auto dy = random_tensor(y.sizes(), at::kBFloat16, 5, 1e-4).to(device);
    y.backward(dy);

    const auto x8 = rounded(x, Fp8Format::kE4m3), w8 = rounded(w, Fp8Format::kE4m3),
               d8 = rounded(dy, Fp8Format::kE5m2);
    auto wanted = at::matmul(x8, w8.t());
    if (bias) wanted = wanted + b.detach().to(at::kDouble);
    // Factors are exact; the fast sums of forward and of x's gradient keep 14 bits.
    EXPECT_LE(relative_error(y.detach(), wanted), tolerance(at::kBFloat16));
    EXPECT_LE(relative_error(x.grad(), at::matmul(d8, w8)), tolerance(at::kBFloat16));
    EXPECT_LE(relative_error(w.grad(), at::matmul(d8.reshape({rows, out}).t(), x8.reshape({rows, in}))),
              tolerance(at::kBFloat16));
    if (bias) {
      EXPECT_LE(relative_error(b.grad(), dy.to(at::kDouble).sum(at::IntArrayRef{0, 1})),
                tolerance(at::kBFloat16));
    }
  }
  {
    const ops::WithoutFp8 off;
    EXPECT_FALSE(ops::fp8());
  }
  EXPECT_TRUE(ops::fp8());
  ops::use_fp8(false);
}

// Rows of two chunks. Each step as ops/loss/fused_head.cpp has it, by ordinary products of rounded factors.
TEST_P(Fp8On, TheHeadsProductsAreThoseOfRoundedFactors) {
  if (device.is_cpu()) GTEST_SKIP() << "products of fp8 are for GPUs";
  constexpr int64_t N = 8192 + 160, V = 192, D = 128;
  // -1, 0 and 1, and eighths of these: factors and logits are exact, so that both sides round the same ones.
  const auto h = random_tensor({N, D}, at::kBFloat16, 1).to(device).sign().set_requires_grad(true);
  const auto w =
      (random_tensor({V, D}, at::kBFloat16, 2).round().sign() / 8).to(device).set_requires_grad(true);
  auto targets = at::arange(N, at::TensorOptions(at::kLong).device(device)) % V;
  targets.narrow(0, 10, 20).fill_(ops::kIgnoreIndex);
  const ops::LossOptions options{.scale =
                                     at::full({}, 1e-3, h.options().dtype(at::kFloat).requires_grad(false))};
  ops::use_fp8(true);
  const auto loss = ops::fused_head(h, w, targets, options);
  loss.objective.backward();
  ops::use_fp8(false);

  const auto h8 = rounded(h, Fp8Format::kE4m3), w8 = rounded(w, Fp8Format::kE4m3);
  const auto logits = at::matmul(h8, w8.t()).to(at::kBFloat16).set_requires_grad(true);
  const auto wanted = ops::cross_entropy(logits, targets, options);
  wanted.objective.backward();
  EXPECT_LE(relative_error(loss.losses, wanted.losses), tolerance(at::kBFloat16));
  const auto cast = ops::fp8_cast_plain(logits.grad(), options.scale, Fp8Format::kE5m2, true, false);
  const auto d8 = cast.rows.to(at::kFloat).to(at::kDouble) * cast.scale.to(at::kDouble);
  EXPECT_LE(relative_error(h.grad(), at::matmul(d8, w8)), tolerance(at::kBFloat16));
  EXPECT_LE(relative_error(w.grad(), at::matmul(d8.t(), h8)), tolerance(at::kBFloat16));
}

TEST(Fp8, LeavesSmallAndOddProductsAlone) {
  ops::use_fp8(true);
  EXPECT_FALSE(ops::fp8_takes(at::zeros({16, 128}), at::zeros({128, 128}))) << "not on a CPU";
  ops::use_fp8(false);
}

}  // namespace
}  // namespace tightloop::testing
