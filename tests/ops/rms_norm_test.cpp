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
  void compare(int64_t rows, int64_t D, at::ScalarType dtype, bool weighted, bool both = true,
               at::ScalarType weight_dtype = at::kFloat) {
    SCOPED_TRACE(::testing::Message()
                 << rows << " x " << D << ' ' << dtype << " weighted " << weighted << ' ' << device);
    std::vector<Tensor> inputs{random_tensor({rows, D}, dtype, 1).to(device),
                               random_tensor({rows, D}, dtype, 2).to(device)};
    if (weighted) inputs.push_back((random_tensor({D}, at::kDouble, 3, 0.3) + 1.0).to(device, weight_dtype));
    const auto call = [&](auto add) {
      return [=](const std::vector<Tensor>& in) {
        const auto made = add(in[0], in[1], weighted ? in[2] : Tensor(), kEps);
        return both ? at::cat({made.sum, made.normed}) : made.normed;
      };
    };
    const double rounding = dtype == at::kFloat ? 4e-6 : 2 * tolerance(dtype);  // the sum's, then the norm's
    expect_agreement(call(ops::add_rms_norm), call(ops::add_rms_norm_plain), inputs, rounding);
  }
};
ON_EVERY_DEVICE(AddRmsNormOn);

TEST_P(AddRmsNormOn, AgreesWithThePlainTwin) {
  for (const bool weighted : {false, true})
    for (const int64_t D : {8, 7, 64, 768, 1536}) compare(5, D, at::kFloat, weighted);
}

TEST_P(AddRmsNormOn, AgreesIn16Bits) {
  if (!has_kernel_for("tightloop::add_rms_norm_forward", device))
    GTEST_SKIP() << "torch's passes round each step";
  for (const int64_t D : {8, 256, 520, 1024, 1032, 8192}) {
    compare(3, D, at::kBFloat16, true);
    compare(3, D, at::kBFloat16, true, true, at::kBFloat16);
    if (device.is_cuda()) compare(3, D, at::kHalf, false, true, at::kHalf);
  }
}

TEST_P(AddRmsNormOn, TheSumMayBeUnused) { compare(7, 64, at::kFloat, true, /*both=*/false); }

TEST_P(AddRmsNormOn, TakesManyRowsAndNone) {
  compare(2500, 16, at::kFloat, true);
  if (device.is_cuda()) compare(600, 8192, at::kBFloat16, true);
  compare(0, 16, at::kFloat, true);
}

TEST_P(AddRmsNormOn, RefusesTensorsThatDiffer) {
  const Tensor x = at::ones({2, 8}).to(device);
  EXPECT_THROW(ops::add_rms_norm(x, x.slice(0, 1), {}, kEps), c10::Error);
}

TEST(AddRmsNorm, PlainTwinHasTheRightGradient) {
  expect_gradients_by_differences(
      [](const auto& in) {
        const auto made = ops::add_rms_norm_plain(in[0], in[1], in[2], kEps);
        return at::cat({made.sum, made.normed});
      },
      {random_tensor({3, 5}, at::kDouble, 1), random_tensor({3, 5}, at::kDouble, 2),
       random_tensor({5}, at::kDouble, 3)});
}

class MixRmsNormOn : public OnDevice {
 protected:
  using Mix = decltype(&ops::mix_rms_norm);
  enum Read { kAll, kNormed, kSumAndX };  // which results have a gradient

  Tensor number(double value, at::ScalarType dtype = at::kFloat) const {
    return at::full({}, value, at::TensorOptions(dtype).device(device));
  }
  /// Inputs: x, y, both scales, perhaps a branch.
  static Tensor call(Mix mix, const std::vector<Tensor>& in, Read read) {
    const auto made = mix(in[0], in[1], in.size() > 4 ? in[4] : Tensor(), kEps, {in[2], in[3]});
    if (read == kNormed) return made.normed;
    if (read == kSumAndX) return at::cat({made.sum, made.x});
    return at::cat({made.sum, made.normed, made.x});
  }
  void compare(int64_t rows, int64_t D, at::ScalarType dtype, bool branch, Read read = kAll,
               at::ScalarType scale_dtype = at::kFloat) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << D << ' ' << dtype << " branch " << branch
                                      << " read " << read << ' ' << device);
    std::vector<Tensor> inputs{random_tensor({rows, D}, dtype, 1).to(device),
                               random_tensor({rows, D}, dtype, 2).to(device), number(1.25, scale_dtype),
                               number(-0.5, scale_dtype)};
    if (branch) inputs.push_back(random_tensor({rows, D}, dtype, 3).to(device));
    const double rounding = dtype == at::kFloat ? 4e-6 : 2 * tolerance(dtype);  // the sum's, then the norm's
    // A scale's gradient is a sum of many terms of both signs. Of the norm alone, which no common scale
    // changes, they cancel; in 16 bits it may be smaller than their roundings.
    std::vector<size_t> fixed;
    if (dtype != at::kFloat || read == kNormed) fixed = {2, 3};
    expect_agreement([&](const auto& in) { return call(ops::mix_rms_norm, in, read); },
                     [&](const auto& in) { return call(ops::mix_rms_norm_plain, in, read); }, inputs,
                     rounding, fixed);
  }
};
ON_EVERY_DEVICE(MixRmsNormOn);

TEST_P(MixRmsNormOn, AgreesWithThePlainTwin) {
  for (const bool branch : {false, true})
    for (const int64_t D : {8, 7, 64, 768, 1536}) compare(5, D, at::kFloat, branch);
}

TEST_P(MixRmsNormOn, AgreesIn16Bits) {
  if (!has_kernel_for("tightloop::add_rms_norm_forward", device))
    GTEST_SKIP() << "torch's passes round each step";
  for (const bool branch : {false, true})
    for (const int64_t D : {8, 256, 520, 1024, 1032, 8192}) {
      compare(3, D, at::kBFloat16, branch);
      compare(3, D, at::kBFloat16, branch, kAll, at::kBFloat16);
      if (device.is_cuda()) compare(3, D, at::kHalf, branch, kAll, at::kHalf);
    }
}

TEST_P(MixRmsNormOn, SomeResultsMayBeUnused) {
  for (const bool branch : {false, true})
    for (const auto read : {kNormed, kSumAndX}) compare(7, 64, at::kFloat, branch, read);
}

TEST_P(MixRmsNormOn, TakesManyRowsAndNone) {
  compare(2500, 16, at::kFloat, true);
  if (device.is_cuda()) compare(600, 8192, at::kBFloat16, true);
  compare(0, 16, at::kFloat, true);
}

// A loss whose terms all pull the scales the same way.
TEST_P(MixRmsNormOn, ScalesLearnIn16Bits) {
  const auto loss = [](const ops::MixedSum& made) {
    return at::stack({made.sum.to(at::kDouble).square().mean() + made.normed.to(at::kDouble).mean()});
  };
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    expect_agreement(
        [&](const auto& in) {
          return loss(ops::mix_rms_norm(in[0], in[1], in[4], kEps, {in[2], in[3]}));
        },
        [&](const auto& in) {
          return loss(ops::mix_rms_norm_plain(in[0], in[1], in[4], kEps, {in[2], in[3]}));
        },
        {random_tensor({300, 96}, at::kBFloat16, 1).to(device),
         random_tensor({300, 96}, at::kBFloat16, 2).to(device), number(1.25, dtype), number(-0.5, dtype),
         random_tensor({300, 96}, at::kBFloat16, 3).to(device)},
        2 * tolerance(at::kBFloat16));
  }
}

TEST_P(MixRmsNormOn, AScaleOfZeroHasAFiniteGradient) {
  Tensor scale = number(0).requires_grad_();
  const Tensor x = random_tensor({4, 16}, at::kFloat, 1).to(device).requires_grad_();
  ops::mix_rms_norm(x, x.detach(), {}, kEps, {number(1), scale}).sum.sum().backward();
  EXPECT_TRUE(scale.grad().isfinite().item<bool>());
}

TEST_P(MixRmsNormOn, OneTensorMayBeBothSides) {
  const auto twice = [](Mix mix) {
    return [=](const std::vector<Tensor>& in) {
      const auto made = mix(in[0], in[0], {}, kEps, {in[1], in[2]});
      return at::cat({made.sum, made.x});
    };
  };
  expect_agreement(twice(ops::mix_rms_norm), twice(ops::mix_rms_norm_plain),
                   {random_tensor({6, 32}, at::kFloat, 1).to(device), number(1.5), number(0.25)}, 4e-6);
}

TEST_P(MixRmsNormOn, RefusesHalfAPairOfScales) {
  const Tensor x = at::ones({2, 8}).to(device);
  EXPECT_THROW(ops::mix_rms_norm(x, x, {}, kEps, {.x = number(1), .y = {}}), c10::Error);
  EXPECT_THROW(ops::mix_rms_norm(x, x, x.slice(0, 1), kEps, {number(1), number(1)}), c10::Error);
}

TEST(MixRmsNorm, PlainTwinHasTheRightGradient) {
  expect_gradients_by_differences(
      [](const auto& in) {
        const auto made = ops::mix_rms_norm_plain(in[0], in[1], in[2], kEps, {in[3], in[4]});
        return at::cat({made.sum, made.normed, made.x});
      },
      {random_tensor({3, 5}, at::kDouble, 1), random_tensor({3, 5}, at::kDouble, 2),
       random_tensor({3, 5}, at::kDouble, 3), random_tensor({}, at::kDouble, 4),
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
