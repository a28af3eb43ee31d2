#include "ops/norm/rms_norm.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>

#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using at::Tensor;
constexpr double kEps = 1e-5;

// A row of one element has nearly no gradient but through epsilon: with a small one only rounding would be
// compared.
double epsilon(const Tensor& x) { return x.size(-1) == 1 ? 1.0 : kEps; }

Tensor fused(const std::vector<Tensor>& in) { return ops::rms_norm(in[0], in[1], epsilon(in[0])); }
Tensor plain(const std::vector<Tensor>& in) { return ops::rms_norm_plain(in[0], in[1], epsilon(in[0])); }

void compare(at::IntArrayRef shape, at::ScalarType dtype, at::ScalarType weight_dtype, at::Device device) {
  SCOPED_TRACE(::testing::Message() << "shape " << shape << ' ' << dtype << " weight " << weight_dtype << ' '
                                    << device);
  const Tensor x = random_tensor(shape, dtype, 1).to(device);
  const Tensor weight = (random_tensor({shape.back()}, at::kDouble, 2) + 1.0).to(device, weight_dtype);
  expect_agreement(fused, plain, {x, weight}, tolerance(dtype));
}

class RmsNormOn : public OnDevice {};
ON_EVERY_DEVICE(RmsNormOn);

TEST_P(RmsNormOn, AgreesWithThePlainTwin) {
  for (const int64_t D : {1, 7, 8, 128, 129, 768})
    for (const int64_t N : {1, 3, 200}) {
      compare({N, D}, at::kFloat, at::kFloat, device);
      compare({N, D}, at::kBFloat16, at::kBFloat16, device);
      compare({N, D}, at::kBFloat16, at::kFloat, device);
      if (device.is_cuda()) compare({N, D}, at::kHalf, at::kHalf, device);
    }
}

TEST_P(RmsNormOn, TakesLongRowsAndManyRows) {
  compare({2, 3, 5000}, at::kFloat, at::kFloat, device);
  compare({3, 8192}, at::kBFloat16, at::kFloat, device);
  compare({3000, 64}, at::kFloat, at::kFloat, device);
}

TEST_P(RmsNormOn, TakesNothing) { compare({0, 16}, at::kFloat, at::kFloat, device); }

TEST_P(RmsNormOn, TakesViews) {
  const Tensor base = random_tensor({6, 40, 9}, at::kFloat, 3).to(device);
  const Tensor weight = random_tensor({80}, at::kFloat, 4).to(device);
  expect_agreement(fused, plain, {base.transpose(1, 2), weight.slice(0, 0, 80, 2)}, tolerance(at::kFloat));
  // Dense rows that start at an odd address: no 16-byte accesses there.
  const Tensor shifted = random_tensor({8 * 64 + 1}, at::kBFloat16, 5).to(device).slice(0, 1).view({8, 64});
  expect_agreement(fused, plain, {shifted, weight.slice(0, 3, 67)}, tolerance(at::kBFloat16));
}

TEST_P(RmsNormOn, KeepsLargeAndSmallNumbers) {
  for (const double scale : {1e-12, 1e-3, 1e15}) {
    const Tensor x = random_tensor({4, 96}, at::kFloat, 6, scale).to(device);
    const Tensor y = ops::rms_norm(x, at::ones({96}, x.options()), 0.0);
    EXPECT_NEAR((y * y).mean().item<double>(), 1.0, 1e-5) << scale;
  }
}

TEST_P(RmsNormOn, PassesOnNaN) {
  Tensor x = at::ones({2, 8}, at::kBFloat16).to(device);
  x[1][3] = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = ops::rms_norm(x, at::ones({8}, x.options()), kEps);
  EXPECT_FALSE(y[0].isnan().any().item<bool>());
  EXPECT_TRUE(y[1].isnan().all().item<bool>());
}

// Bits, not digits: the sum over rows has a fixed order whatever the number of threads or the run.
TEST_P(RmsNormOn, GivesTheSameBitsAgain) {
  std::vector<Tensor> first;
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 3, 3}) {
    at::set_num_threads(count);
    Tensor x = random_tensor({1777, 96}, at::kFloat, 7).to(device).requires_grad_();
    Tensor weight = random_tensor({96}, at::kFloat, 8).to(device).requires_grad_();
    const Tensor y = ops::rms_norm(x, weight, kEps);
    auto results =
        torch::autograd::grad({y}, {x, weight}, {random_tensor({1777, 96}, at::kFloat, 9).to(device)});
    results.push_back(y);
    if (first.empty()) first = results;
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], results[i])) << i;
  }
  at::set_num_threads(threads);
}

TEST_P(RmsNormOn, DoesWithoutAWeight) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const int64_t D : {7, 64, 768})
      expect_agreement([](const auto& in) { return ops::rms_norm(in[0], {}, kEps); },
                       [](const auto& in) { return ops::rms_norm_plain(in[0], {}, kEps); },
                       {random_tensor({5, D}, dtype, 1).to(device)}, tolerance(dtype));
}

class AddRmsNormOn : public OnDevice {
 protected:
  /// Inputs: x, y, then what `weighted` and `scaled` call for.
  using Add = decltype(&ops::add_rms_norm);
  static Tensor call(Add add, const std::vector<Tensor>& in, bool weighted, bool scaled, bool both) {
    const size_t scales = weighted ? 3 : 2;
    const auto made = add(in[0], in[1], weighted ? in[2] : Tensor(), kEps,
                          scaled ? ops::SumScales{in[scales], in[scales + 1]} : ops::SumScales{});
    return both ? at::cat({made.sum, made.normed}) : made.normed;
  }
  void compare(int64_t rows, int64_t D, at::ScalarType dtype, bool weighted, bool scaled, bool both = true,
               at::ScalarType scale_dtype = at::kFloat) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << D << ' ' << dtype << " weighted " << weighted
                                      << " scaled " << scaled << ' ' << device);
    std::vector<Tensor> inputs{random_tensor({rows, D}, dtype, 1).to(device),
                               random_tensor({rows, D}, dtype, 2).to(device)};
    if (weighted) inputs.push_back((random_tensor({D}, at::kDouble, 3, 0.3) + 1.0).to(device, scale_dtype));
    if (scaled)
      for (const double scale : {1.25, -0.5})
        inputs.push_back(at::full({}, scale, at::TensorOptions(scale_dtype).device(device)));
    const double rounding = dtype == at::kFloat ? 4e-6 : 2 * tolerance(dtype);  // the sum's, then the norm's
    // A scale's gradient is a sum of many terms of both signs. Of the norm alone, which no common scale
    // changes, they cancel; in 16 bits it may be smaller than their roundings.
    std::vector<size_t> fixed;
    if (scaled && (dtype != at::kFloat || !both)) fixed = {inputs.size() - 2, inputs.size() - 1};
    expect_agreement(
        [&](const auto& in) { return call(ops::add_rms_norm, in, weighted, scaled, both); },
        [&](const auto& in) { return call(ops::add_rms_norm_plain, in, weighted, scaled, both); }, inputs,
        rounding, fixed);
  }
};
ON_EVERY_DEVICE(AddRmsNormOn);

TEST_P(AddRmsNormOn, AgreesWithThePlainTwin) {
  for (const bool weighted : {false, true})
    for (const bool scaled : {false, true})
      for (const int64_t D : {8, 7, 64, 768, 1536}) compare(5, D, at::kFloat, weighted, scaled);
}

TEST_P(AddRmsNormOn, AgreesIn16Bits) {
  if (!has_kernel_for("tightloop::add_rms_norm_forward", device))
    GTEST_SKIP() << "torch's passes round each step";
  for (const bool scaled : {false, true})
    for (const int64_t D : {8, 256, 520, 1024, 1032, 8192}) {
      compare(3, D, at::kBFloat16, true, scaled);
      compare(3, D, at::kBFloat16, true, scaled, true, at::kBFloat16);
      if (device.is_cuda()) compare(3, D, at::kHalf, false, scaled, true, at::kHalf);
    }
}

TEST_P(AddRmsNormOn, TheSumMayBeUnused) {
  compare(7, 64, at::kFloat, true, false, /*both=*/false);
  compare(7, 64, at::kFloat, false, true, /*both=*/false);
}

TEST_P(AddRmsNormOn, TakesManyRowsAndNone) {
  compare(2500, 16, at::kFloat, true, true);
  if (device.is_cuda()) compare(600, 8192, at::kBFloat16, true, true);
  compare(0, 16, at::kFloat, true, true);
}

// A loss whose terms all pull the scales the same way.
TEST_P(AddRmsNormOn, ScalesLearnIn16Bits) {
  const auto loss = [](const ops::NormedSum& made) {
    return at::stack({made.sum.to(at::kDouble).square().mean() + made.normed.to(at::kDouble).mean()});
  };
  for (const auto scale_dtype : {at::kFloat, at::kBFloat16}) {
    const auto number = [&](double value) {
      return at::full({}, value, at::TensorOptions(scale_dtype).device(device));
    };
    expect_agreement(
        [&](const auto& in) {
          return loss(ops::add_rms_norm(in[0], in[1], {}, kEps, {in[2], in[3]}));
        },
        [&](const auto& in) {
          return loss(ops::add_rms_norm_plain(in[0], in[1], {}, kEps, {in[2], in[3]}));
        },
        {random_tensor({300, 96}, at::kBFloat16, 1).to(device),
         random_tensor({300, 96}, at::kBFloat16, 2).to(device), number(1.25), number(-0.5)},
        2 * tolerance(at::kBFloat16));
  }
}

TEST_P(AddRmsNormOn, OneTensorMayBeBothSides) {
  const auto twice = [](const auto& in) {
    return ops::add_rms_norm(in[0], in[0], {}, kEps, {in[1], in[2]}).sum;
  };
  const auto plain_twice = [](const auto& in) {
    return ops::add_rms_norm_plain(in[0], in[0], {}, kEps, {in[1], in[2]}).sum;
  };
  const auto number = [&](double value) {
    return at::full({}, value, at::TensorOptions(at::kFloat).device(device));
  };
  expect_agreement(twice, plain_twice,
                   {random_tensor({6, 32}, at::kFloat, 1).to(device), number(1.5), number(0.25)}, 4e-6);
}

TEST_P(AddRmsNormOn, RefusesHalfAPairOfScales) {
  const Tensor x = at::ones({2, 8}).to(device);
  EXPECT_THROW(ops::add_rms_norm(x, x, {}, kEps, {.x = at::ones({}).to(device), .y = {}}), c10::Error);
  EXPECT_THROW(ops::add_rms_norm(x, x.slice(0, 1), {}, kEps), c10::Error);
}

TEST(AddRmsNorm, PlainTwinHasTheRightGradient) {
  expect_gradients_by_differences(
      [](const auto& in) {
        const auto made = ops::add_rms_norm_plain(in[0], in[1], in[2], kEps, {in[3], in[4]});
        return at::cat({made.sum, made.normed});
      },
      {random_tensor({3, 5}, at::kDouble, 1), random_tensor({3, 5}, at::kDouble, 2),
       random_tensor({5}, at::kDouble, 3), random_tensor({}, at::kDouble, 4),
       random_tensor({}, at::kDouble, 5)});
}

TEST(RmsNorm, PlainTwinHasTheRightGradient) {
  expect_gradients_by_differences(
      plain, {random_tensor({3, 5}, at::kDouble, 1), random_tensor({5}, at::kDouble, 2)});
}

TEST(RmsNorm, FallsBackToThePlainTwinForOtherDtypes) {
  const Tensor x = random_tensor({3, 5}, at::kDouble, 1), weight = random_tensor({5}, at::kDouble, 2);
  EXPECT_TRUE(at::equal(fused({x, weight}), plain({x, weight})));
}

TEST(RmsNorm, RefusesAWeightOfTheWrongSize) {
  EXPECT_THROW(ops::rms_norm(at::ones({2, 8}), at::ones({7}), kEps), c10::Error);
}

}  // namespace
}  // namespace tightloop::testing
