#include "ops/attention/row_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

struct Sizes {
  int64_t B, H, K, T, P, S;
  bool causal;
};

ops::AttentionCall call_of(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  return {.q_BHTS = q, .k_BKPS = k, .v_BKPS = v, .causal = causal};
}

/// y as rows (B, T, H, S), from q, k and v of the same layout.
Tensor ours(const std::vector<Tensor>& in, bool causal) {
  const auto call = call_of(in[0].transpose(1, 2), in[1].transpose(1, 2), in[2].transpose(1, 2), causal);
  EXPECT_TRUE(ops::row_attention_takes(call));
  return ops::row_attention(call).transpose(1, 2);
}
Tensor torchs(const std::vector<Tensor>& in, bool causal) {
  return at::scaled_dot_product_attention(in[0].transpose(1, 2), in[1].transpose(1, 2), in[2].transpose(1, 2),
                                          {}, 0, causal, {}, /*enable_gqa=*/true)
      .transpose(1, 2);
}

std::vector<Tensor> inputs(const Sizes& n, at::ScalarType dtype) {
  return {random_tensor({n.B, n.T, n.H, n.S}, dtype, 1), random_tensor({n.B, n.P, n.K, n.S}, dtype, 2),
          random_tensor({n.B, n.P, n.K, n.S}, dtype, 3)};
}

bool suits() {
  const auto in = inputs({1, 1, 1, 16, 16, 16, true}, at::kFloat);
  return ops::row_attention_takes(
      call_of(in[0].transpose(1, 2), in[1].transpose(1, 2), in[2].transpose(1, 2), true));
}
#define SKIP_WITHOUT_ROW_ATTENTION() \
  if (!suits()) GTEST_SKIP() << "this CPU is left to torch's kernel"

TEST(RowAttention, AgreesWithTorch) {
  SKIP_WITHOUT_ROW_ATTENTION();
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const Sizes& n : {Sizes{1, 1, 1, 16, 16, 16, true},
                           {2, 4, 2, 97, 97, 32, true},
                           {1, 6, 2, 200, 200, 64, true},
                           {1, 2, 2, 33, 33, 48, true},
                           {2, 2, 1, 131, 131, 128, false},
                           {1, 2, 2, 17, 70, 16, false},
                           {1, 1, 1, 300, 20, 16, false}}) {
      SCOPED_TRACE(::testing::Message() << n.B << ' ' << n.H << ' ' << n.K << ' ' << n.T << ' ' << n.P << ' '
                                        << n.S << ' ' << n.causal << ' ' << dtype);
      // In 16 bits the backward pass takes the rows' dot products from the rounded result.
      expect_agreement([&](const auto& in) { return ours(in, n.causal); },
                       [&](const auto& in) { return torchs(in, n.causal); }, inputs(n, dtype),
                       (dtype == at::kFloat ? 1 : 2) * tolerance(dtype));
    }
}

TEST(RowAttention, GivesTheGradientOfOneTensorAsAWhole) {
  SKIP_WITHOUT_ROW_ATTENTION();
  const auto parts = [](const Tensor& qkv) {
    const auto split = qkv.split_with_sizes({4, 2, 2}, 2);
    return std::vector<Tensor>{split[0], split[1], split[2]};
  };
  expect_agreement(
      [&](const auto& in) {
        const auto part = parts(in[0]);
        auto call = call_of(part[0].transpose(1, 2), part[1].transpose(1, 2), part[2].transpose(1, 2), true);
        call.qkv_BTJS = in[0];
        return ops::row_attention(call).transpose(1, 2);
      },
      [&](const auto& in) { return torchs(parts(in[0]), true); },
      {random_tensor({2, 50, 8, 32}, at::kFloat, 1)}, tolerance(at::kFloat));
}

TEST(RowAttention, GivesTheSameBitsAgain) {
  SKIP_WITHOUT_ROW_ATTENTION();
  std::vector<Tensor> first;
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 3, 3}) {
    at::set_num_threads(count);
    auto in = inputs({2, 6, 3, 111, 111, 32, true}, at::kFloat);
    for (auto& x : in) x.requires_grad_();
    const auto y = ours(in, true);
    auto results = torch::autograd::grad({y}, in, {random_tensor(y.sizes(), at::kFloat, 4)});
    results.push_back(y);
    if (first.empty()) first = results;
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], results[i])) << i;
  }
  at::set_num_threads(threads);
}

TEST(RowAttention, LeavesTheRestToTorch) {
  const auto takes = [](const Sizes& n, at::ScalarType dtype = at::kFloat) {
    const auto in = inputs(n, dtype);
    return ops::row_attention_takes(
        call_of(in[0].transpose(1, 2), in[1].transpose(1, 2), in[2].transpose(1, 2), n.causal));
  };
  EXPECT_FALSE(takes({1, 1, 1, 1, 40, 16, true})) << "one query after others";
  EXPECT_FALSE(takes({1, 1, 1, 20, 20, 20, true})) << "heads that are not whole tiles";
  EXPECT_FALSE(takes({1, 1, 1, 1100, 1100, 16, true})) << "scores that leave the cache";
  EXPECT_FALSE(takes({1, 1, 1, 20, 20, 16, true}, at::kDouble));
  const PlainScope plain;
  EXPECT_FALSE(takes({1, 1, 1, 20, 20, 16, true}));
}

}  // namespace
}  // namespace tightloop::testing
