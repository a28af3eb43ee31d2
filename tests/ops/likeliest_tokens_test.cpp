#include "ops/decode/likeliest_tokens.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/round.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "core/random.h"
#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using at::Tensor;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

ops::TokenLimits on(const ops::TokenLimits& limits, at::Device device) {
  const auto there = [&](const Tensor& x) { return x.defined() ? x.to(device) : x; };
  return {there(limits.forbidden_V), there(limits.only_N)};
}

void expect_the_same(const Tensor& logits, int64_t count, const ops::TokenLimits& limits, at::Device device) {
  const auto fast = ops::likeliest_tokens(logits.to(device), count, on(limits, device));
  const auto plain = ops::likeliest_tokens_plain(logits, count, limits);
  EXPECT_TRUE(at::equal(fast.ids.cpu(), plain.ids)) << fast.ids << plain.ids;
  EXPECT_TRUE(at::allclose(fast.log_p.cpu(), plain.log_p, 1e-5, 1e-5)) << fast.log_p << plain.log_p;
}

/// Ids that may not be chosen, and rows that have one choice: some of them a forbidden one.
ops::TokenLimits any_limits(Random& random, int64_t N, int64_t V) {
  ops::TokenLimits limits{at::zeros({V}, at::kBool), at::full({N}, -1, at::kLong)};
  for (int64_t i = 0; i < V / 3; ++i)
    limits.forbidden_V.mutable_data_ptr<bool>()[random.below(static_cast<uint64_t>(V))] = true;
  for (int64_t i = 0; i < N; i += 2)
    limits.only_N.mutable_data_ptr<int64_t>()[i] =
        static_cast<int64_t>(random.below(static_cast<uint64_t>(V)));
  return limits;
}

class LikeliestTokensOn : public OnDevice {};
ON_EVERY_DEVICE(LikeliestTokensOn);

TEST_P(LikeliestTokensOn, AreThoseOfTheTwin) {
  Random random(1);
  for (const int64_t V : {1, 2, 7, 8, 33, 301, 2048, 9001})
    for (int round = 0; round < 4; ++round) {
      const int64_t N = V > 300 ? 3 : 9;
      Tensor logits = random_tensor({N, V}, at::kFloat, random.next(), round == 1 ? 20.0 : 3.0);
      if (round == 2) logits = at::round(logits);  // many are equal
      if (round == 3) {
        for (int64_t i = 0; i < N * V / 3 + 1; ++i)
          logits.mutable_data_ptr<float>()[random.below(static_cast<uint64_t>(N * V))] =
              std::initializer_list<float>{-kInfinity, std::nanf(""), 0.0f, -0.0f}.begin()[random.below(4)];
      }
      for (const int64_t count : {int64_t{1}, std::min<int64_t>(V, 10), std::min<int64_t>(V, 128)}) {
        SCOPED_TRACE(::testing::Message() << N << " x " << V << ", round " << round << ", " << count);
        expect_the_same(logits, count, {}, device);
        expect_the_same(logits, count, any_limits(random, N, V), device);
      }
    }
}

TEST_P(LikeliestTokensOn, AreThoseOfLogSoftmaxAndTopk) {
  const Tensor logits = random_tensor({5, 700}, at::kFloat, 2);
  const auto found = ops::likeliest_tokens(logits.to(device), 12);
  const auto [log_p, ids] = at::topk(at::log_softmax(logits, -1), 12);
  EXPECT_TRUE(at::equal(found.ids.cpu(), ids));
  EXPECT_LE(relative_error(found.log_p, log_p), 1e-6);
}

// All that is likely stands with few threads of a GPU, more of it than they can list.
TEST_P(LikeliestTokensOn, AreFoundWhereverTheyStand) {
  const int64_t V = 60000;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    Tensor logits = random_tensor({2, V}, at::kFloat, 3);
    const int64_t wide = dtype == at::kFloat ? 4 : 8;
    for (int64_t id = 0; id < V; ++id)
      if (id / wide % 256 < 10) logits.select(1, id).add_(8);
    expect_the_same(logits.to(dtype), 10, {}, device);
    expect_the_same(at::zeros({2, V}, dtype), 10, {}, device);
  }
}

TEST_P(LikeliestTokensOn, TakesScoresIn16BitsAndViews) {
  Random random(4);
  for (const auto dtype : {at::kBFloat16, at::kHalf})
    expect_the_same(random_tensor({4, 301}, dtype, 3), 10, any_limits(random, 4, 301), device);
  const Tensor wide = random_tensor({4, 501}, at::kFloat, 4);
  const auto found = ops::likeliest_tokens(wide.to(device).slice(1, 1, 499), 5);
  EXPECT_TRUE(at::equal(found.ids.cpu(), ops::likeliest_tokens_plain(wide.slice(1, 1, 499), 5).ids));
  expect_the_same(wide.t().slice(0, 0, 4).slice(1, 0, 4), 3, {}, device);
}

TEST_P(LikeliestTokensOn, WhereNothingIsLikelyAllIsAlike) {
  const auto nothing = at::tensor({-kInfinity, std::nanf(""), -kInfinity}).expand({2, 3});
  const auto found = ops::likeliest_tokens(nothing.to(device), 3);
  EXPECT_TRUE(at::equal(found.ids.cpu(), at::tensor({0, 1, 2}, at::kLong).expand({2, 3})));
  EXPECT_LE(relative_error(found.log_p, at::full({2, 3}, -std::log(3.0))), 1e-6);
  const auto certain = at::tensor({1.0f, kInfinity, 2.0f}).unsqueeze(0);
  const auto one = ops::likeliest_tokens(certain.to(device), 2);
  EXPECT_TRUE(at::equal(one.ids.cpu(), at::tensor({1, 2}, at::kLong).view({1, 2})));
  EXPECT_EQ(one.log_p.cpu()[0][0].item<float>(), 0);
  EXPECT_EQ(one.log_p.cpu()[0][1].item<float>(), -kInfinity);
}

TEST_P(LikeliestTokensOn, PlacesWithoutATokenAreEmpty) {
  ops::TokenLimits limits{at::tensor({1, 0, 1, 1, 0}).to(at::kBool), at::tensor({-1, 4, 2}, at::kLong)};
  const auto found = ops::likeliest_tokens(at::zeros({3, 5}).to(device), 3, on(limits, device));
  EXPECT_TRUE(at::equal(found.ids.cpu(), at::tensor({1, 4, 0, 4, 0, 0, 0, 0, 0}, at::kLong).view({3, 3})));
  const float some = -std::log(5.0f);
  const auto expected =
      at::tensor({some, some, -kInfinity, some, -kInfinity, -kInfinity, -kInfinity, -kInfinity, -kInfinity});
  EXPECT_TRUE(at::allclose(found.log_p.cpu(), expected.view({3, 3})));
}

TEST_P(LikeliestTokensOn, TakesNoRows) {
  EXPECT_EQ(ops::likeliest_tokens(at::zeros({0, 5}).to(device), 2).ids.sizes(), at::IntArrayRef({0, 2}));
}

TEST(LikeliestTokens, WhatCannotBeGivenIsRefused) {
  EXPECT_THROW(ops::likeliest_tokens(at::zeros({3, 4}), 5), c10::Error);
  EXPECT_THROW(ops::likeliest_tokens(at::zeros({3, 4}), 0), c10::Error);
  EXPECT_THROW(ops::likeliest_tokens(at::zeros({3, 4}), 2, {at::zeros({5}, at::kBool)}), c10::Error);
  EXPECT_THROW(ops::likeliest_tokens(at::zeros({3, 4}), 2, {{}, at::zeros({4}, at::kLong)}), c10::Error);
}

}  // namespace
}  // namespace tightloop::testing
