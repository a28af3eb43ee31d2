#include "ops/quantized_linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include "ops/compare.h"
#include "ops/linear.h"
#include "ops/operator.h"

namespace tightloop::testing {
namespace {

using at::Tensor;
using ops::WeightFormat;

class QuantizedLinearOn : public OnDevice {
 protected:
  at::NoGradGuard no_grad;
};
ON_EVERY_DEVICE(QuantizedLinearOn);

constexpr auto kFormats = {WeightFormat::kInt8, WeightFormat::kInt4};

/// The kernel itself, which takes fp16 as well where it stands in for the CPU's.
Tensor by_kernel(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  static const auto op =
      ops::find_operator<Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&)>(
          "tightloop::quantized_linear");
  return op.call(x, weight, bias);
}

TEST_P(QuantizedLinearOn, AgreesWithThePlainTwin) {
  for (const auto format : kFormats)
    for (const auto dtype : {at::kBFloat16, at::kHalf, at::kFloat})
      for (const auto& [I, O] :
           {std::pair{32, 1}, {96, 5}, {128, 9}, {672, 17}, {1056, 8}, {2080, 19}, {4128, 3}})
        for (const int64_t N : {0, 1, 2, 3, 4, 7, 8, 9, 16, 17, 40}) {
          if (kFibers && (dtype == at::kFloat || N > 16 || N % 3 == 0 || (N > 1 && I > 1000 && N != 16)))
            continue;
          if (device.is_cpu() && dtype == at::kHalf && !kFibers) continue;
          SCOPED_TRACE(::testing::Message() << N << " x " << I << " x " << O << ' ' << dtype << " format "
                                            << static_cast<int>(format));
          const Tensor x = random_tensor({N, I}, dtype, 1), bias = random_tensor({O}, dtype, 3);
          const Tensor weight = ops::quantize(random_tensor({O, I}, at::kFloat, 2, 0.1), format);
          ASSERT_TRUE(ops::is_quantized(weight));
          const auto wide = ops::dequantize_plain(weight, I, at::kDouble);
          const Tensor wanted = at::linear(x.to(at::kDouble), wide, bias.to(at::kDouble));
          // More rows than few go by a weight in x's dtype, rounded once more.
          const double room = N > 16 && dtype != at::kFloat ? 2 : 1;
          const Tensor made = kFibers && N <= 16
                                  ? by_kernel(x, weight, bias)
                                  : ops::linear(x.to(device), weight.to(device), bias.to(device));
          EXPECT_EQ(made.scalar_type(), dtype);
          EXPECT_LE(relative_error(made, wanted), room * tolerance(dtype));
          EXPECT_LE(relative_error(ops::quantized_linear_plain(x, weight, bias), wanted), tolerance(dtype));
        }
}

TEST_P(QuantizedLinearOn, UnpacksAsThePlainTwin) {
  for (const auto format : kFormats)
    for (const auto dtype : {at::kBFloat16, at::kHalf, at::kFloat})
      for (const auto& [O, I] : {std::pair{1, 32}, {70, 160}, {3, 1280}}) {
        const Tensor weight = ops::quantize(random_tensor({O, I}, at::kFloat, 4), format);
        EXPECT_TRUE(at::equal(ops::dequantize(weight.to(device), I, dtype).cpu(),
                              ops::dequantize_plain(weight, I, dtype)))
            << O << " x " << I << ' ' << dtype;
      }
}

TEST_P(QuantizedLinearOn, ARowHasTheSameBitsWhateverRowsAreBesideIt) {
  for (const auto format : kFormats) {
    const Tensor weight = ops::quantize(random_tensor({11, 1024}, at::kFloat, 5), format).to(device);
    const Tensor x = random_tensor({16, 1024}, at::kBFloat16, 6).to(device);
    const Tensor all = ops::quantized_linear(x, weight);
    for (const int64_t N : {1, 3, 9})
      EXPECT_TRUE(at::equal(ops::quantized_linear(x.slice(0, 16 - N), weight), all.slice(0, 16 - N))) << N;
  }
}

double error_of(const Tensor& weight, WeightFormat format) {
  const Tensor back = ops::dequantize_plain(ops::quantize(weight, format), weight.size(1), at::kFloat);
  return ((back - weight).square().mean() / weight.square().mean()).sqrt().item<double>();
}

TEST(QuantizedLinear, KeepsWhatItsBitsCanKeep) {
  const Tensor normal = random_tensor({64, 512}, at::kFloat, 7, 0.02);
  EXPECT_LT(error_of(normal, WeightFormat::kInt8), 0.009);
  EXPECT_LT(error_of(normal, WeightFormat::kInt4), 0.11);
  // Each integer is as near as it can be.
  const Tensor packed = ops::quantize(normal, WeightFormat::kInt8);
  const Tensor half = normal.abs().amax(1, true) / 254;
  EXPECT_TRUE(
      ((ops::dequantize_plain(packed, 512, at::kFloat) - normal).abs() <= half * 1.0001).all().item<bool>());
  // A scale for each row, and for each group of 128.
  const Tensor uneven = at::cat({normal, 100 * normal}, 0);
  EXPECT_LT(error_of(uneven, WeightFormat::kInt8), 0.009);
  EXPECT_LT(error_of(at::cat({normal, 100 * normal}, 1), WeightFormat::kInt4), 0.11);
  // A group of one sign uses all of its integers.
  EXPECT_LT(error_of(normal.abs(), WeightFormat::kInt4), 0.065);
}

TEST(QuantizedLinear, KeepsZeros) {
  for (const auto format : kFormats) {
    const Tensor zeros = at::zeros({3, 160});
    EXPECT_TRUE(at::equal(ops::dequantize_plain(ops::quantize(zeros, format), 160, at::kFloat), zeros));
    const Tensor some = random_tensor({3, 160}, at::kFloat, 8);
    some.narrow(1, 7, 90).zero_();
    const Tensor back = ops::dequantize_plain(ops::quantize(some, format), 160, at::kFloat);
    EXPECT_TRUE((back.narrow(1, 7, 90) == 0).all().item<bool>());
  }
}

TEST(QuantizedLinear, TakesManyOutputsInParts) {
  const at::NoGradGuard no_grad;
  const Tensor weight = ops::quantize(random_tensor({70000, 1024}, at::kFloat, 9), WeightFormat::kInt8);
  const Tensor x = random_tensor({17, 1024}, at::kFloat, 10);
  const Tensor made = ops::quantized_linear(x, weight);
  const Tensor last = weight.slice(0, 69990);
  EXPECT_LE(relative_error(made.slice(1, 69990), ops::quantized_linear_plain(x, last)),
            tolerance(at::kFloat));
}

TEST(QuantizedLinear, RefusesTrainingAndWhatItCannotPack) {
  const Tensor weight = ops::quantize(random_tensor({4, 64}, at::kFloat, 1), WeightFormat::kInt8);
  try {
    ops::linear(random_tensor({2, 64}, at::kFloat, 2).requires_grad_(), weight);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("cannot be trained"), std::string::npos);
  }
  EXPECT_FALSE(ops::can_quantize(at::zeros({4, 40})));
  EXPECT_THROW(ops::quantize(at::zeros({4, 40}), WeightFormat::kInt4), c10::Error);
  EXPECT_THROW(ops::linear(at::zeros({2, 96}), weight), c10::Error);
}

}  // namespace
}  // namespace tightloop::testing
