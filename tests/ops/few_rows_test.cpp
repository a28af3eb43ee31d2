#include "ops/few_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>

#include "ops/compare.h"
#include "ops/linear.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

class FewRowsOn : public OnDevice {
 protected:
  at::NoGradGuard no_grad;
};
ON_EVERY_DEVICE(FewRowsOn);

/// By the kernel, whether ops::linear would take it or not, against fp64 and one rounding.
void expect_the_product(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                        at::Device device) {
  const auto dtype = x.scalar_type();
  const auto there = [&](const std::optional<Tensor>& one) {
    return one ? std::optional(one->to(device)) : std::nullopt;
  };
  const auto wide = [](const std::optional<Tensor>& one) {
    return one ? std::optional(one->to(at::kDouble)) : std::nullopt;
  };
  const Tensor made = ops::few_rows_linear(x.to(device), weight.to(device), there(bias));
  EXPECT_EQ(made.scalar_type(), dtype);
  EXPECT_LE(relative_error(made, at::linear(*wide(x), *wide(weight), wide(bias))), tolerance(dtype));
}

TEST_P(FewRowsOn, AgreesWithThePlainTwin) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    if (device.is_cpu() && dtype == at::kHalf && !kFibers) continue;
    for (const auto& [I, O] :
         {std::pair{8, 1}, {24, 6}, {256, 9}, {264, 17}, {1032, 8}, {2056, 5}, {4104, 7}})
      for (const int64_t N : {0, 1, 2, 3, 4, 5, 8, 9, 15, 16}) {
        if (kFibers && (N % 4 == 3 || N == 2)) continue;  // they take their time
        SCOPED_TRACE(::testing::Message() << N << " x " << I << " x " << O << ' ' << dtype);
        const Tensor x = random_tensor({N, I}, dtype, 1), weight = random_tensor({O, I}, dtype, 2, 0.1);
        expect_the_product(x, weight, {}, device);
        if (N < 4) expect_the_product(x.view({1, N, I}), weight, random_tensor({O}, dtype, 3), device);
      }
  }
}

TEST_P(FewRowsOn, ARowHasTheSameBitsWhateverRowsAreBesideIt) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const int64_t I : {512, 3072}) {
      const Tensor x = random_tensor({16, I}, dtype, 4).to(device);
      const Tensor weight = random_tensor({23, I}, dtype, 5).to(device);
      const Tensor all = ops::few_rows_linear(x, weight, {});
      for (const int64_t N : {1, 2, 4, 7, 9})
        EXPECT_TRUE(at::equal(ops::few_rows_linear(x.slice(0, 16 - N), weight, {}), all.slice(0, 16 - N)))
            << N << " rows of " << I << ' ' << dtype;
    }
}

TEST_P(FewRowsOn, LinearTakesItWithoutGradients) {
  const auto dtype = device.is_cpu() ? at::kFloat : at::kBFloat16;  // one that every CPU takes
  const Tensor x = random_tensor({2, 64}, dtype, 1).to(device);
  const Tensor weight = random_tensor({32, 64}, dtype, 2).to(device);
  ASSERT_TRUE(ops::few_rows_take(x, weight, {}));
  EXPECT_TRUE(at::equal(ops::linear(x, weight), ops::few_rows_linear(x, weight, {})));
  const Tensor views = random_tensor({2, 80}, dtype, 3).to(device).slice(1, 3, 67);
  EXPECT_LE(relative_error(ops::linear(views, weight), at::linear(views, weight)), tolerance(dtype));
  EXPECT_FALSE(ops::few_rows_take(x.expand({64, 2, 64}), weight, {})) << "too many rows";
  EXPECT_FALSE(ops::few_rows_take(x.slice(1, 0, 14), weight.slice(1, 0, 14).contiguous(), {}))
      << "rows of whole 16 bytes";
  const PlainScope plain;
  EXPECT_FALSE(ops::few_rows_take(x, weight, {}));
}

TEST(FewRows, LeavesProductsWithGradientsAlone) {
  const Tensor x = random_tensor({2, 64}, at::kFloat, 1);
  const Tensor weight = random_tensor({32, 64}, at::kFloat, 2).requires_grad_();
  EXPECT_FALSE(ops::few_rows_take(x, weight, {}));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(ops::few_rows_take(x, weight, {}));
}

}  // namespace
}  // namespace tightloop::testing
