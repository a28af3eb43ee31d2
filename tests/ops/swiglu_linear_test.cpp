#include "ops/decode/swiglu_linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linear.h>

#include "ops/compare.h"
#include "ops/few_rows.h"
#include "ops/operator.h"
#include "ops/pointwise/swiglu.h"
#include "ops/quantized_linear.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

/// By the kernel, also where it has no business on the CPU (fp16 as fibers).
Tensor by_kernel(const Tensor& gate_up, const Tensor& weight) {
  static const auto op = ops::find_operator<Tensor(const Tensor&, const Tensor&)>("tightloop::swiglu_linear");
  return op.call(gate_up, weight);
}

class SwigluLinearOn : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped() && !has_kernel_for("tightloop::swiglu_linear", device)) GTEST_SKIP() << "no kernel";
  }
  at::NoGradGuard no_grad;
};
ON_EVERY_DEVICE(SwigluLinearOn);

TEST_P(SwigluLinearOn, AgreesWithThePlainTwin) {
  for (const auto dtype : {at::kBFloat16, at::kHalf})
    for (const auto& [I, O] :
         {std::pair{8, 1}, {24, 6}, {264, 17}, {1032, 8}, {2056, 5}, {3072, 9}, {4104, 7}, {9216, 3}})
      for (const int64_t N : {1, 2, 4}) {
        if (N * I * 2 > 40 << 10) continue;
        SCOPED_TRACE(::testing::Message() << N << " x " << I << " x " << O << ' ' << dtype);
        const Tensor gate_up = random_tensor({N, 2 * I}, dtype, 1).to(device);
        const Tensor weight = random_tensor({O, I}, dtype, 2, 0.1).to(device);
        const Tensor wanted = at::linear(ops::swiglu_plain(gate_up).to(at::kDouble), weight.to(at::kDouble));
        EXPECT_LE(relative_error(by_kernel(gate_up, weight), wanted), 2 * tolerance(dtype));
      }
}

TEST_P(SwigluLinearOn, HasTheBitsOfTheOperatorsOneAfterTheOther) {
  for (const int64_t I : {8, 264, 1024, 2048, 3072, 9216})
    for (const int64_t N : {1, 2, 4}) {
      if (N * I * 2 > 40 << 10) continue;
      const Tensor gate_up = random_tensor({N, 2 * I}, at::kBFloat16, 1, 3).to(device);
      const Tensor weight = random_tensor({11, I}, at::kBFloat16, 2).to(device);
      const Tensor made = by_kernel(gate_up, weight), gated = ops::swiglu(gate_up);
      EXPECT_TRUE(at::equal(made, ops::few_rows_linear(gated, weight, {}))) << N << " x " << I;
      // By ones the rows themselves are seen; as fibers, which take their time, the first elements.
      const Tensor ones = at::eye(device.is_cpu() ? 8 : I, I, gate_up.options());
      EXPECT_TRUE(at::equal(by_kernel(gate_up, ones), gated.slice(1, 0, ones.size(0)))) << N << " x " << I;
      for (int64_t n = 0; n < N; ++n)
        EXPECT_TRUE(at::equal(by_kernel(gate_up.slice(0, n, n + 1), weight), made.slice(0, n, n + 1)))
            << "row " << n << " of " << N << " x " << I << " alone";
    }
}

TEST_P(SwigluLinearOn, ServesFewRowsAlone) {
  const auto some = [&](at::IntArrayRef shape, at::ScalarType dtype) {
    return random_tensor(shape, dtype, 3).to(device);
  };
  const Tensor weight = some({16, 64}, at::kBFloat16);
  const Tensor two = some({1, 2, 128}, at::kBFloat16);
  EXPECT_TRUE(ops::few_made_rows_take(two, weight, {}));
  EXPECT_TRUE(at::equal(ops::swiglu_linear(two, weight), by_kernel(two, weight)));
  EXPECT_FALSE(ops::few_made_rows_take(some({5, 128}, at::kBFloat16), weight, {})) << "too many rows";
  EXPECT_FALSE(ops::few_made_rows_take(some({2, 128}, at::kFloat), some({16, 64}, at::kFloat), {}))
      << "not of 16 bits";
  const PlainScope plain;
  EXPECT_FALSE(ops::few_made_rows_take(two, weight, {}));
}

class SwigluLinearEverywhereOn : public OnDevice {};
ON_EVERY_DEVICE(SwigluLinearEverywhereOn);

TEST_P(SwigluLinearEverywhereOn, IsTheOperatorsOtherwise) {
  for (const int64_t N : {0, 2, 9})
    expect_agreement(
        [](const auto& in) { return ops::swiglu_linear(in[0], in[1]); },
        [](const auto& in) { return ops::swiglu_linear_plain(in[0], in[1]); },
        {random_tensor({N, 48}, at::kFloat, 1).to(device), random_tensor({7, 24}, at::kFloat, 2).to(device)},
        4e-6);
  const at::NoGradGuard no_grad;
  const Tensor gate_up = random_tensor({2, 256}, at::kBFloat16, 3).to(device);
  const Tensor packed =
      ops::quantize(random_tensor({16, 128}, at::kBFloat16, 4).to(device), ops::WeightFormat::kInt4);
  EXPECT_TRUE(
      at::equal(ops::swiglu_linear(gate_up, packed), ops::quantized_linear(ops::swiglu(gate_up), packed)));
}

}  // namespace
}  // namespace tightloop::testing
