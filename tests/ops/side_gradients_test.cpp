#include "ops/side_gradients.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/relu.h>
#include <gtest/gtest.h>

#include <optional>

#include "model/parts/recompute.h"
#include "ops/compare.h"
#include "ops/linear.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

class SideGradientsOn : public OnDevice {
 protected:
  struct Weights {
    Tensor first, bias, second;
    std::vector<Tensor> all() const { return {first, bias, second}; }
  };
  Weights weights() const {
    const auto some = [&](at::IntArrayRef shape, uint64_t seed) {
      return random_tensor(shape, at::kBFloat16, seed, 0.1).to(device).set_requires_grad(true);
    };
    return {some({64, 32}, 1), some({64}, 2), some({32, 64}, 3)};
  }
  /// Each weight is read twice.
  static Tensor twice(const Weights& w, Tensor x) {
    for (int i = 0; i < 2; ++i) x = ops::linear(at::relu(ops::linear(x, w.first, w.bias)), w.second);
    return x;
  }
  Tensor input() const { return random_tensor({4, 5, 32}, at::kBFloat16, 7).to(device); }
  void expect_the_same(const Weights& got, const Weights& wanted) const {
    for (size_t i = 0; i < got.all().size(); ++i)
      EXPECT_TRUE(at::equal(got.all()[i].grad(), wanted.all()[i].grad())) << i;
  }
};
ON_EVERY_DEVICE(SideGradientsOn);

TEST_P(SideGradientsOn, AreThoseOfTheBackwardPass) {
  for (const bool recompute : {false, true}) {
    const auto run = [&](const Weights& w) {
      Tensor y = input();
      if (recompute)
        y = recomputed([&](const std::vector<Tensor>& in) { return std::vector{twice(w, in[0])}; }, {y},
                       w.all())[0];
      else
        y = twice(w, y);
      y.backward(random_tensor({4, 5, 32}, at::kBFloat16, 8).to(device));
    };
    const auto wanted = weights(), got = weights();
    run(wanted);
    for (int pass = 0; pass < 3; ++pass) {  // memory comes back to the next
      for (const auto& w : got.all()) w.mutable_grad().reset();
      ops::SideGradients side(device);
      run(got);
      EXPECT_EQ(got.first.grad().defined(), recompute || !device.is_cuda()) << "on a GPU not before join()";
      side.join();
      expect_the_same(got, wanted);
    }
  }
}

TEST_P(SideGradientsOn, AreAddedToWhatIsThere) {
  const auto wanted = weights(), got = weights();
  for (int pass = 0; pass < 2; ++pass) {
    ops::linear(input(), wanted.first, wanted.bias).sum().backward();
    ops::SideGradients side(device);
    ops::linear(input(), got.first, got.bias).sum().backward();
    side.join();
  }
  EXPECT_TRUE(at::equal(got.first.grad(), wanted.first.grad()));
  EXPECT_TRUE(at::equal(got.bias.grad(), wanted.bias.grad()));
}

TEST_P(SideGradientsOn, WeightsThatAreNoLeavesAreLeftAlone) {
  const auto w = weights();
  ops::SideGradients side(device);
  EXPECT_FALSE(ops::side_gradients_take(input(), w.first * 2, {}));
  EXPECT_FALSE(ops::side_gradients_take(input(), w.first.detach(), {}));
  EXPECT_FALSE(ops::side_gradients_take(input(), w.first, w.bias * 2));
  EXPECT_EQ(ops::side_gradients_take(input(), w.first, w.bias), device.is_cuda());
}

TEST_P(SideGradientsOn, APassThatFailedLeavesNothingBehind) {
  const auto w = weights();
  {
    const ops::SideGradients side(device);
    ops::linear(input(), w.first).sum().backward();
  }  // no join()
  EXPECT_EQ(w.first.grad().defined(), !device.is_cuda());
  EXPECT_FALSE(ops::side_gradients_take(input(), w.first, {})) << "no pass is under way";
}

// The pass is over by the time its backward runs.
TEST_P(SideGradientsOn, ABackwardPassMayComeLater) {
  const auto wanted = weights(), got = weights();
  Tensor y;
  {
    const ops::SideGradients side(device);
    y = ops::linear(input(), got.first, got.bias).sum();
  }
  y.backward();
  ops::linear(input(), wanted.first, wanted.bias).sum().backward();
  EXPECT_TRUE(at::equal(got.first.grad(), wanted.first.grad()));
  EXPECT_TRUE(at::equal(got.bias.grad(), wanted.bias.grad()));
}

}  // namespace
}  // namespace tightloop::testing
