#include "ops/attention/split_heads.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "ops/attention/rope.h"
#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

constexpr double kEps = 1e-5;
const std::vector<size_t> kTables{1, 2};

enum class Norm { kNone, kPlain, kWeighted };
enum class Used { kAll, kQueriesAndKeys, kQueries, kKeysAndValues, kValues };

struct Case {
  int64_t B = 2, T = 5, H = 4, K = 2, S = 32, offset = 0;
  Norm norm = Norm::kWeighted;
  at::ScalarType dtype = at::kFloat;
  at::ScalarType weight_dtype = dtype;
  Used used = Used::kAll;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.B << " x " << c.T << ", heads " << c.H << " + 2 x " << c.K << " of " << c.S << " at "
             << c.offset << ' ' << c.dtype << ", weights " << c.weight_dtype << ", norm "
             << static_cast<int>(c.norm) << ", used " << static_cast<int>(c.used);
}

/// in: qkv, cos, sin, then the weights where there are some.
template <class Split>
Function function(const Case& c, Split&& split) {
  return [c, split](const std::vector<Tensor>& in) {
    std::optional<ops::HeadNorm> norm;
    if (c.norm == Norm::kPlain) norm = {.eps = kEps, .q_weight = {}, .k_weight = {}};
    if (c.norm == Norm::kWeighted) norm = {.eps = kEps, .q_weight = in[3], .k_weight = in[4]};
    const auto [q, k, v] = split(in[0], c.H, in[1], in[2], c.offset, norm, {});
    switch (c.used) {
      case Used::kQueriesAndKeys:
        return at::cat({q, k}, 2);
      case Used::kQueries:
        return q * 1.0;
      case Used::kKeysAndValues:
        return at::cat({k, v}, 2);
      case Used::kValues:
        return v * 1.0;
      default:
        return at::cat({q, k, v}, 2);
    }
  };
}

Tensor qkv_of(const Case& c) { return random_tensor({c.B, c.T, c.H + 2 * c.K, c.S}, c.dtype, 1); }

/// Queries and keys are rounded once by the kernel, twice where a norm and a rotation follow one another.
double tolerance_of(const Case& c, at::Device device) {
  const int64_t bytes = c.S / 2 * static_cast<int64_t>(c10::elementSize(c.dtype));
  const bool kernel =
      has_kernel_for("tightloop::split_heads_forward", device) && bytes % 16 == 0 && bytes <= 512;
  const bool twice = c.dtype != at::kFloat && c.norm != Norm::kNone && !kernel;
  return (twice ? 2 : 1) * tolerance(c.dtype);
}

class SplitHeadsOn : public OnDevice {
 protected:
  void compare(const Case& c) { compare(c, qkv_of(c).to(device)); }
  void compare(const Case& c, const Tensor& qkv) {
    SCOPED_TRACE(::testing::Message() << c << ' ' << device);
    const auto [cos, sin] = ops::rope_tables(c.offset + c.T + 3, ops::rope_frequencies(c.S, 10000.0));
    std::vector<Tensor> in{qkv, cos.to(device), sin.to(device)};
    auto fixed = kTables;
    if (c.norm == Norm::kWeighted) {
      for (const uint64_t seed : {2, 3})
        in.push_back((random_tensor({c.S}, at::kDouble, seed, 0.3) + 1).to(device, c.weight_dtype));
      // A weight that nothing depends on has no gradient in the twin.
      if (c.used == Used::kKeysAndValues || c.used == Used::kValues) fixed.push_back(3);
      if (c.used == Used::kQueries || c.used == Used::kValues) fixed.push_back(4);
    }
    expect_agreement(function(c, ops::split_heads), function(c, ops::split_heads_plain), in,
                     tolerance_of(c, device), fixed);
  }
  std::vector<at::ScalarType> dtypes() const {
    if (device.is_cuda()) return {at::kFloat, at::kBFloat16, at::kHalf};
    return {at::kFloat, at::kBFloat16};  // fp16 is for the twins there, which round each step
  }
};
ON_EVERY_DEVICE(SplitHeadsOn);

TEST_P(SplitHeadsOn, AgreesWithThePlainTwin) {
  for (const auto dtype : dtypes())
    for (const auto norm : {Norm::kNone, Norm::kPlain, Norm::kWeighted})
      for (const int64_t S : {16, 32, 64, 96, 128})
        compare({.S = S, .offset = S == 96 ? 7 : 0, .norm = norm, .dtype = dtype});
}

TEST_P(SplitHeadsOn, TakesAnyNumberOfHeadsAndPositions) {
  for (const auto norm : {Norm::kNone, Norm::kPlain, Norm::kWeighted}) {
    compare({.B = 1, .T = 1, .H = 1, .K = 1, .S = 64, .norm = norm, .dtype = at::kBFloat16});
    compare({.B = 3, .T = 7, .H = 6, .K = 6, .S = 128, .offset = 11, .norm = norm, .dtype = at::kBFloat16});
    compare({.B = 1, .T = 9, .H = 9, .K = 3, .S = 96, .norm = norm, .dtype = at::kBFloat16});
    compare({.B = 5, .T = 13, .H = 14, .K = 2, .S = 32, .norm = norm});
  }
}

TEST_P(SplitHeadsOn, TakesWeightsInFp32) {
  for (const auto dtype : dtypes())
    for (const int64_t S : {64, 96}) compare({.S = S, .dtype = dtype, .weight_dtype = at::kFloat});
}

// More positions than the blocks that leave parts of the weights' gradients have warps.
TEST_P(SplitHeadsOn, TakesManyPositions) {
  compare({.B = 23, .T = 97, .H = 2, .K = 1, .S = 16});
  if (device.is_cuda()) compare({.B = 64, .T = 257, .H = 4, .K = 2, .S = 96});
}

TEST_P(SplitHeadsOn, GradientsMayBeMissing) {
  for (const auto norm : {Norm::kNone, Norm::kPlain, Norm::kWeighted})
    for (const auto used : {Used::kQueriesAndKeys, Used::kQueries, Used::kKeysAndValues, Used::kValues})
      compare({.S = 64, .norm = norm, .dtype = at::kBFloat16, .used = used});
}

TEST_P(SplitHeadsOn, TakesStridedHeads) {
  for (const auto norm : {Norm::kNone, Norm::kWeighted}) {
    const Case c{.B = 2, .T = 3, .S = 32, .norm = norm, .dtype = at::kBFloat16};
    const auto large = [&](at::IntArrayRef shape) { return random_tensor(shape, c.dtype, 4).to(device); };
    compare(c, large({2, 5, 11, 32}).slice(1, 1, 4).slice(2, 2, 10));
    compare(c, large({2, 8, 3, 32}).transpose(1, 2));        // heads before positions
    compare(c, large({2, 3, 8, 33}).slice(3, 1));            // starts and strides that no wide access takes
    compare(c, large({2, 3, 8, 64}).slice(3, 0, 64, 2));     // every other element
    compare(c, large({1, 3, 8, 32}).expand({2, 3, 8, 32}));  // one row for all
  }
}

TEST_P(SplitHeadsOn, SizesWithoutAKernelAreServedToo) {
  for (const auto norm : {Norm::kNone, Norm::kPlain, Norm::kWeighted}) {
    compare({.S = 6, .norm = norm});
    compare({.S = 40, .norm = norm, .dtype = at::kBFloat16});
    compare({.T = 2, .H = 2, .K = 1, .S = 520, .norm = norm});
  }
  compare({.T = 2, .H = 2, .K = 1, .S = 256});                          // the largest that has one
  compare({.T = 2, .H = 2, .K = 1, .S = 512, .dtype = at::kBFloat16});  // the same in 16 bits
}

TEST_P(SplitHeadsOn, TakesNothing) {
  for (const auto norm : {Norm::kNone, Norm::kPlain, Norm::kWeighted}) {
    compare({.B = 0, .norm = norm});
    compare({.T = 0, .norm = norm, .dtype = at::kBFloat16});
  }
}

// Each row at a position of its own, as if it were alone there; below 0 as at 0.
TEST_P(SplitHeadsOn, RowsMayHavePositionsOfTheirOwn) {
  const c10::NoGradGuard no_grad;
  for (const int64_t S : {64, 6}) {
    const auto [cos, sin] = ops::rope_tables(50, ops::rope_frequencies(S, 10000.0));
    const Tensor c = cos.to(device), s = sin.to(device);
    const Tensor qkv = qkv_of({.B = 5, .T = 1, .S = S, .dtype = at::kBFloat16}).to(device);
    const std::vector<int32_t> positions{7, 0, 49, -1, 7};
    const ops::HeadNorm norm{kEps, {}, {}};
    const auto all = ops::split_heads(qkv, 4, c, s, 0, norm, at::tensor(positions, at::kInt).to(device));
    for (int64_t n = 0; n < 5; ++n) {
      const auto at = std::max(positions[static_cast<size_t>(n)], 0);
      const auto one = ops::split_heads(qkv.narrow(0, n, 1), 4, c, s, at, norm);
      EXPECT_TRUE(at::equal(all.q[n], one.q[0]) && at::equal(all.k[n], one.k[0]) &&
                  at::equal(all.v[n], one.v[0]))
          << n;
    }
  }
}

TEST_P(SplitHeadsOn, ValuesAreNotCopied) {
  const auto [cos, sin] = ops::rope_tables(8, ops::rope_frequencies(32, 10000.0));
  const Tensor qkv = qkv_of({}).to(device).requires_grad_();
  const auto [q, k, v] = ops::split_heads(qkv, 4, cos.to(device), sin.to(device));
  EXPECT_TRUE(q.is_contiguous() && k.is_contiguous());
  EXPECT_EQ(v.const_data_ptr(), qkv.narrow(2, 6, 2).const_data_ptr());
  EXPECT_TRUE(at::equal(v, qkv.narrow(2, 6, 2)));
}

TEST_P(SplitHeadsOn, GivesTheSameBitsAgain) {
  const Case c{.B = 7, .T = 31, .S = 32, .dtype = at::kBFloat16};
  const auto [cos, sin] = ops::rope_tables(c.T, ops::rope_frequencies(c.S, 10000.0));
  const auto run = [&, cos = cos, sin = sin] {
    std::vector<Tensor> in{qkv_of(c).to(device), cos.to(device), sin.to(device)};
    for (const uint64_t seed : {2, 3}) in.push_back(random_tensor({c.S}, c.dtype, seed).to(device));
    for (const size_t i : {0, 3, 4}) in[i].requires_grad_();
    const Tensor y = function(c, ops::split_heads)(in);
    return torch::autograd::grad({y}, {in[0], in[3], in[4]},
                                 {random_tensor(y.sizes(), c.dtype, 9).to(device)});
  };
  const auto first = run(), second = run();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << i;
}

// Heads of zeros have no direction; eps keeps them finite, and heads without numbers stay so alone.
TEST_P(SplitHeadsOn, NumbersOfOneHeadDoNotReachAnother) {
  const auto [cos, sin] = ops::rope_tables(5, ops::rope_frequencies(96, 10000.0));
  Tensor qkv = qkv_of({.B = 1, .S = 96}).to(device);
  qkv.select(1, 1).select(1, 0).zero_();
  qkv.select(1, 2).select(1, 1).fill_(NAN);
  const auto [q, k, v] =
      ops::split_heads(qkv, 4, cos.to(device), sin.to(device), 0, ops::HeadNorm{kEps, {}, {}});
  EXPECT_TRUE(at::equal(q.select(1, 1).select(1, 0), at::zeros({1, 96}, q.options())));
  EXPECT_EQ(q.isnan().sum().item<int64_t>(), 96);
  EXPECT_FALSE(k.isnan().any().item<bool>() || v.isnan().any().item<bool>());
}

TEST(SplitHeads, PlainTwinHasTheRightGradient) {
  const auto [cos, sin] = ops::rope_tables(4, ops::rope_frequencies(6, 100.0));
  for (const auto norm : {Norm::kNone, Norm::kPlain, Norm::kWeighted}) {
    const Case c{.B = 2, .T = 3, .H = 2, .K = 1, .S = 6, .offset = 1, .norm = norm, .dtype = at::kDouble};
    std::vector<Tensor> in{qkv_of(c), cos.to(at::kDouble), sin.to(at::kDouble)};
    if (norm == Norm::kWeighted)
      for (const uint64_t seed : {2, 3}) in.push_back(random_tensor({6}, at::kDouble, seed));
    expect_gradients_by_differences(function(c, ops::split_heads_plain), in, kTables);
  }
}

TEST(SplitHeads, OffsetContinuesASequence) {
  const auto [cos, sin] = ops::rope_tables(20, ops::rope_frequencies(32, 10000.0));
  const Tensor qkv = qkv_of({.T = 20});
  const auto keys = [&, cos = cos, sin = sin](const Tensor& part, int64_t offset) {
    return ops::split_heads(part, 4, cos, sin, offset, ops::HeadNorm{kEps, {}, {}}).k;
  };
  const Tensor parts = at::cat({keys(qkv.slice(1, 0, 13), 0), keys(qkv.slice(1, 13), 13)}, 1);
  EXPECT_TRUE(at::equal(keys(qkv, 0), parts));
}

TEST(SplitHeads, RefusesWhatDoesNotBelongTogether) {
  const auto [cos, sin] = ops::rope_tables(6, ops::rope_frequencies(32, 10000.0));
  const Tensor qkv = qkv_of({}), weight = random_tensor({32}, at::kFloat, 2);
  const auto split = [&, cos = cos, sin = sin](const Tensor& x, int64_t heads, int64_t offset,
                                               const Tensor& q_weight, const Tensor& k_weight) {
    return ops::split_heads(x, heads, cos, sin, offset, ops::HeadNorm{kEps, q_weight, k_weight});
  };
  EXPECT_NO_THROW(split(qkv, 4, 1, weight, weight));
  EXPECT_THROW(split(qkv, 3, 0, weight, weight), c10::Error);
  EXPECT_THROW(split(qkv, 8, 0, weight, weight), c10::Error);
  EXPECT_THROW(split(qkv, 4, 2, weight, weight), c10::Error);
  EXPECT_THROW(split(qkv, 4, -1, weight, weight), c10::Error);
  EXPECT_THROW(split(qkv.slice(3, 0, 16), 4, 0, weight, weight), c10::Error);
  EXPECT_THROW(split(qkv, 4, 0, weight, weight.slice(0, 0, 16)), c10::Error);
  EXPECT_THROW(split(qkv, 4, 0, weight, {}), c10::Error);
}

}  // namespace
}  // namespace tightloop::testing
