#include "ops/decode/normed_linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linear.h>

#include "ops/compare.h"
#include "ops/few_rows.h"
#include "ops/linear.h"
#include "ops/norm/rms_norm.h"
#include "ops/operator.h"
#include "ops/quantized_linear.h"

namespace tightloop::testing {
namespace {

using at::Tensor;
using Optional = std::optional<Tensor>;

constexpr double kEps = 1e-5;

struct Rows {
  Tensor x, branch, norm_weight, weight;
  Optional bias;

  static Rows random(int64_t N, int64_t I, int64_t O, at::ScalarType dtype, at::Device device) {
    const auto some = [&](at::IntArrayRef shape, uint64_t seed, double scale = 1) {
      return random_tensor(shape, dtype, seed, scale).to(device);
    };
    return {some({N, I}, 1), some({N, I}, 2), some({I}, 3), some({O, I}, 4, 0.1), some({O}, 5)};
  }
};

/// By the kernel, also where it has no business on the CPU (fp16 as fibers).
ops::NormedProduct by_kernel(const Rows& r) {
  using Kernel = std::tuple<Tensor, Tensor>(const Tensor&, const Optional&, const Optional&, double,
                                            const Tensor&, const Optional&);
  static const auto op = ops::find_operator<Kernel>("tightloop::normed_linear");
  const auto [sum, product] =
      op.call(r.x, ops::given(r.branch), ops::given(r.norm_weight), kEps, r.weight, r.bias);
  return {r.branch.defined() ? sum : r.x, product};
}

/// The product of the twin's rows in fp64.
ops::NormedProduct exactly(const Rows& r) {
  const auto then = r.branch.defined() ? ops::add_rms_norm_plain(r.x, r.branch, r.norm_weight, kEps)
                                       : ops::NormedSum{r.x, ops::rms_norm_plain(r.x, r.norm_weight, kEps)};
  const auto bias = r.bias ? Optional(r.bias->to(at::kDouble)) : std::nullopt;
  return {then.sum, at::linear(then.normed.to(at::kDouble), r.weight.to(at::kDouble), bias)};
}

class NormedLinearOn : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped() && !has_kernel_for("tightloop::normed_linear", device)) GTEST_SKIP() << "no kernel";
  }
  at::NoGradGuard no_grad;
};
ON_EVERY_DEVICE(NormedLinearOn);

TEST_P(NormedLinearOn, AgreesWithThePlainTwin) {
  for (const auto dtype : {at::kBFloat16, at::kHalf})
    for (const auto& [I, O] :
         {std::pair{8, 1}, {24, 6}, {264, 17}, {1024, 9}, {1032, 8}, {2048, 3}, {4096, 5}})
      for (const int64_t N : {1, 3, 4}) {
        if (N * I * 2 > 40 << 10) continue;
        SCOPED_TRACE(::testing::Message() << N << " x " << I << " x " << O << ' ' << dtype);
        Rows rows = Rows::random(N, I, O, dtype, device);
        const auto compare = [&] {
          const auto made = by_kernel(rows), wanted = exactly(rows);
          EXPECT_TRUE(at::equal(made.sum, wanted.sum));
          EXPECT_LE(relative_error(made.product, wanted.product), 2 * tolerance(dtype));
        };
        compare();
        if (N != 3) continue;
        rows.bias = {}, rows.norm_weight = rows.norm_weight.to(at::kFloat);
        compare();
        rows.branch = Tensor();
        compare();
        rows.norm_weight = Tensor();
        compare();
      }
}

TEST_P(NormedLinearOn, HasTheBitsOfTheOperatorsOneAfterTheOther) {
  const std::vector<at::ScalarType> dtypes =
      device.is_cpu() ? std::vector{at::kBFloat16} : std::vector{at::kBFloat16, at::kHalf};
  for (const auto dtype : dtypes)
    for (const int64_t I : {8, 264, 768, 1024, 1152, 1280, 1288, 2048, 2056, 4096})
      for (const int64_t N : {1, 2, 4}) {
        if (N * I * 2 > 40 << 10) continue;
        SCOPED_TRACE(::testing::Message() << N << " x " << I << ' ' << dtype);
        Rows rows = Rows::random(N, I, 11, dtype, device);
        // By ones the rows themselves are seen; as fibers, which take their time, the first elements.
        const Tensor ones = at::eye(device.is_cpu() ? 8 : I, I, rows.x.options());
        const auto compare = [&](const ops::NormedSum& then) {
          const auto made = by_kernel(rows);
          EXPECT_TRUE(at::equal(made.sum, then.sum));
          EXPECT_TRUE(at::equal(made.product, ops::few_rows_linear(then.normed, rows.weight, rows.bias)));
          Rows seen = rows;
          seen.weight = ones, seen.bias = {};
          EXPECT_TRUE(at::equal(by_kernel(seen).product, then.normed.slice(1, 0, ones.size(0))));
        };
        compare(ops::add_rms_norm(rows.x, rows.branch, rows.norm_weight, kEps));
        rows.branch = Tensor();
        compare({rows.x, ops::rms_norm(rows.x, rows.norm_weight, kEps)});
      }
}

TEST_P(NormedLinearOn, ARowHasTheSameBitsWhateverRowsAreBesideIt) {
  for (const int64_t I : {512, 2048}) {
    const Rows all = Rows::random(4, I, 23, at::kBFloat16, device);
    const auto made = by_kernel(all);
    for (int64_t n = 0; n < 4; ++n) {
      Rows one = all;
      one.x = all.x.slice(0, n, n + 1), one.branch = all.branch.slice(0, n, n + 1);
      const auto alone = by_kernel(one);
      EXPECT_TRUE(at::equal(alone.sum, made.sum.slice(0, n, n + 1))) << n << " of " << I;
      EXPECT_TRUE(at::equal(alone.product, made.product.slice(0, n, n + 1))) << n << " of " << I;
    }
  }
}

TEST_P(NormedLinearOn, ServesFewRowsAlone) {
  const auto taken = [&](const Rows& r) { return ops::few_made_rows_take(r.x, r.weight, r.bias); };
  Rows rows = Rows::random(2, 64, 16, at::kBFloat16, device);
  EXPECT_TRUE(taken(rows));
  EXPECT_TRUE(at::equal(
      ops::normed_linear(rows.x, rows.branch, rows.norm_weight, kEps, rows.weight, rows.bias).product,
      by_kernel(rows).product));
  EXPECT_FALSE(taken(Rows::random(5, 64, 16, at::kBFloat16, device))) << "too many rows";
  EXPECT_FALSE(taken(Rows::random(2, 64, 16, at::kFloat, device))) << "not of 16 bits";
  EXPECT_FALSE(taken(Rows::random(4, 8192, 1, at::kBFloat16, device))) << "more than a block holds";
  {
    const PlainScope plain;
    EXPECT_FALSE(taken(rows));
  }
  {
    const at::AutoGradMode learning(true);
    rows.weight.requires_grad_();
    EXPECT_FALSE(taken(rows));
  }
}

class NormedLinearEverywhereOn : public OnDevice {};
ON_EVERY_DEVICE(NormedLinearEverywhereOn);

TEST_P(NormedLinearEverywhereOn, IsTheOperatorsOtherwise) {
  for (const int64_t N : {0, 2, 9})
    for (const bool added : {true, false})
      expect_agreement(
          [&](const auto& in) {
            const auto made = ops::normed_linear(in[0], added ? in[1] : Tensor(), in[2], kEps, in[3], in[4]);
            return at::cat({made.sum, made.product}, 1) + in[1].sum();
          },
          [&](const auto& in) {
            const auto made =
                ops::normed_linear_plain(in[0], added ? in[1] : Tensor(), in[2], kEps, in[3], in[4]);
            return at::cat({made.sum, made.product}, 1) + in[1].sum();
          },
          {random_tensor({N, 24}, at::kFloat, 1).to(device), random_tensor({N, 24}, at::kFloat, 2).to(device),
           random_tensor({24}, at::kFloat, 3).to(device), random_tensor({7, 24}, at::kFloat, 4).to(device),
           random_tensor({7}, at::kFloat, 5).to(device)},
          4e-6);
}

TEST_P(NormedLinearEverywhereOn, TakesPackedWeightsAndOddRows) {
  const at::NoGradGuard no_grad;
  Rows rows = Rows::random(2, 128, 16, at::kBFloat16, device);
  const auto then = ops::add_rms_norm(rows.x, rows.branch, rows.norm_weight, kEps);
  const Tensor packed = ops::quantize(rows.weight, ops::WeightFormat::kInt8);
  EXPECT_TRUE(
      at::equal(ops::normed_linear(rows.x, rows.branch, rows.norm_weight, kEps, packed, rows.bias).product,
                ops::quantized_linear(then.normed, packed, rows.bias)));
  const Rows odd = Rows::random(2, 15, 16, at::kBFloat16, device);
  EXPECT_TRUE(
      at::equal(ops::normed_linear(odd.x, odd.branch, odd.norm_weight, kEps, odd.weight).product,
                ops::linear(ops::add_rms_norm(odd.x, odd.branch, odd.norm_weight, kEps).normed, odd.weight)));
}

}  // namespace
}  // namespace tightloop::testing
