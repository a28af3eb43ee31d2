#include "ops/fp8/largest.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "ops/attention/split_heads.h"
#include "ops/compare.h"
#include "ops/fp8/fp8_cast.h"
#include "ops/fp8/fp8_linear.h"
#include "ops/norm/residual_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/pointwise/activation.h"
#include "ops/pointwise/swiglu.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

class LargestOn : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (IsSkipped()) return;
    if (!has_kernel_for("tightloop::add_rms_norm_forward", device))
      GTEST_SKIP() << "no kernel for this device";
    ops::use_fp8(true);
  }
  void TearDown() override { ops::use_fp8(false); }

  Tensor some(at::IntArrayRef shape, uint64_t seed) const {
    return random_tensor(shape, at::kBFloat16, seed).to(device).set_requires_grad(true);
  }
  static bool noted(const Tensor& x) {
    const Tensor once = ops::largest_of(x), twice = ops::largest_of(x);  // without a note, each finds its own
    return once.const_data_ptr() == twice.const_data_ptr();
  }
  static void expect_noted(const Tensor& x, const char* what) {
    EXPECT_TRUE(noted(x)) << what;
    EXPECT_EQ(ops::largest_of(x).item<float>(), ops::absolute_max_plain(x.detach()).item<float>()) << what;
  }
  /// The gradient of x through y, as the kernel left it.
  Tensor gradient(const Tensor& y, const Tensor& x) const {
    return torch::autograd::grad({y}, {x}, {some(y.sizes(), 77).detach()})[0];
  }
};
ON_EVERY_DEVICE(LargestOn);

TEST_P(LargestOn, NormsLeaveNotes) {
  for (const int64_t D : {64, 520, 2048, 4096}) {
    const auto x = some({37, D}, 1), y = some({37, D}, 2);
    const auto weight = some({D}, 3), bias = some({D}, 4);
    const auto rms = ops::add_rms_norm(x, y, weight, 1e-5);
    expect_noted(rms.normed, "add_rms_norm");
    expect_noted(gradient(rms.normed, y), "add_rms_norm's gradient");
    const auto scale = at::ones({}, at::TensorOptions(device));
    const auto mixed = ops::mix_rms_norm(x, y, {}, 1e-5, {scale * 0.5, scale * 7});
    expect_noted(mixed.normed, "mix_rms_norm");
    expect_noted(gradient(mixed.sum, y), "mix_rms_norm's gradient");
    const auto layer = ops::residual_norm(x, y, bias, weight, bias, 1e-5);
    expect_noted(layer.normed, "residual_norm");
    expect_noted(gradient(layer.normed, y), "residual_norm's gradient");
  }
}

TEST_P(LargestOn, ActivationsAndHeadsLeaveNotes) {
  for (const int64_t D : {8, 264, 2048}) {
    const auto x = some({37, D}, 1);
    for (const auto kind : {ops::ActivationKind::kReluSquare, ops::ActivationKind::kGeluTanh}) {
      const auto y = ops::activation(x, {}, kind);
      expect_noted(y, "activation");
      expect_noted(gradient(y, x), "activation's gradient");
    }
    const auto y = ops::swiglu(x);
    expect_noted(y, "swiglu");
    expect_noted(gradient(y, x), "swiglu's gradient");
  }
  const auto qkv = some({2, 5, 6, 64}, 2);
  const auto angle = random_tensor({5, 32}, at::kFloat, 3).to(device);
  const auto [q, k, v] = ops::split_heads(qkv, 2, angle.cos(), angle.sin(), 0, ops::HeadNorm{1e-6, {}, {}});
  expect_noted(gradient(q, qkv), "split_heads' gradient");
}

TEST_P(LargestOn, ANoteEndsWithWhatItIsOf) {
  auto y = ops::rms_norm(some({16, 64}, 1), {}, 1e-5).detach();
  EXPECT_TRUE(noted(y));
  EXPECT_TRUE(noted(y.view({8, 128}))) << "the same memory";
  EXPECT_FALSE(noted(y.narrow(0, 0, 8))) << "a part of it";
  EXPECT_FALSE(noted(y.clone()));
  y.mul_(3);
  EXPECT_FALSE(noted(y)) << "written to since";
  EXPECT_EQ(ops::largest_of(y).item<float>(), ops::absolute_max_plain(y).item<float>());
  // Memory that comes back as another tensor.
  const Tensor x = some({16, 64}, 1).detach();
  ops::rms_norm(x, {}, 1e-5);
  EXPECT_FALSE(noted(x * 2));
}

// Autograd may add one gradient to another in place.
TEST_P(LargestOn, SumsOfGradientsAreNotMistakenForTheirParts) {
  const auto x = some({16, 64}, 1);
  Tensor seen;
  const auto middle = x * 1;
  middle.register_hook([&](const Tensor& gradient) { seen = gradient; });
  (ops::rms_norm(middle, {}, 1e-5).sum() * 1e3 + ops::rms_norm(middle * 2, {}, 1e-5).sum()).backward();
  EXPECT_EQ(ops::largest_of(seen).item<float>(), ops::absolute_max_plain(seen).item<float>());
}

TEST_P(LargestOn, NobodyTakesNotesWithoutFp8) {
  ops::use_fp8(false);
  EXPECT_FALSE(ops::note_largest(at::zeros({4, 4})).defined());
}

}  // namespace
}  // namespace tightloop::testing
