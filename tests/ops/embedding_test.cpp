#include "ops/pointwise/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/device.h"
#include "ops/compare.h"
#include "ops/operator.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

constexpr const char* kBackward = "tightloop::embedding_backward";

/// Ids that occur so often, each third of them in use, in no order.
Tensor ids_of_runs(const std::vector<int64_t>& lengths, uint64_t seed = 1) {
  std::vector<int64_t> ids;
  for (size_t run = 0; run < lengths.size(); ++run)
    ids.insert(ids.end(), static_cast<size_t>(lengths[run]), static_cast<int64_t>(3 * run + 1));
  std::shuffle(ids.begin(), ids.end(), std::mt19937_64(seed));
  return at::tensor(ids, at::kLong);
}

Tensor any_ids(int64_t N, int64_t V, uint64_t seed) {
  return random_tensor({N}, at::kDouble, seed, 1e6).abs().to(at::kLong).remainder(V);
}

/// Whole numbers, whose sums are exact in fp32 in every order.
Tensor whole_numbers(at::IntArrayRef shape, uint64_t seed) {
  return random_tensor(shape, at::kDouble, seed, 4).round();
}

class EmbeddingOn : public OnDevice {
 protected:
  bool has_kernel() const { return has_kernel_for(kBackward, device); }

  void compare(const Tensor& ids, int64_t V, int64_t D, at::ScalarType dtype) {
    SCOPED_TRACE(::testing::Message()
                 << ids.sizes() << " ids of " << V << " x " << D << ' ' << dtype << ' ' << device);
    expect_agreement([&](const auto& in) { return ops::embedding(in[0], in[1]); },
                     [](const auto& in) { return ops::embedding_plain(in[0], in[1]); },
                     {random_tensor({V, D}, dtype, 1).to(device), ids.to(device)}, tolerance(dtype));
  }

  /// The gradient of a table of zeros where dy flows into it.
  Tensor gradient(const Tensor& ids, const Tensor& dy, int64_t V) const {
    const auto weight = at::zeros({V, dy.size(-1)}, dy.options()).requires_grad_();
    const auto y = ops::embedding(weight, ids.to(device));
    return torch::autograd::grad({y}, {weight}, {dy})[0];
  }

  void expect_exact(const Tensor& ids, int64_t V, int64_t D = 8) {
    const auto dy = whole_numbers({ids.numel(), D}, 3);
    const auto wanted = at::zeros({V, D}, at::kDouble).index_add_(0, ids, dy);
    EXPECT_TRUE(at::equal(gradient(ids, dy.to(device, at::kFloat), V).to(at::kCPU, at::kDouble), wanted));
  }
};
ON_EVERY_DEVICE(EmbeddingOn);

TEST_P(EmbeddingOn, AgreesWithThePlainTwin) {
  for (const int64_t D : {4, 12, 128, 132, 300})
    for (const int64_t V : {1, 7, 500}) compare(any_ids(333, V, 2), V, D, at::kFloat);
}

TEST_P(EmbeddingOn, AgreesIn16Bits) {
  if (!has_kernel()) GTEST_SKIP() << "torch's sums round each step";
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    if (dtype == at::kHalf && device.is_cpu()) continue;
    for (const int64_t D : {8, 24, 256, 264, 768})
      for (const int64_t V : {1, 60, 4000}) compare(any_ids(300, V, 2), V, D, dtype);
  }
}

TEST_P(EmbeddingOn, EveryTokenCountsOnceWhereverRunsBeginAndEnd) {
  const std::vector<std::vector<int64_t>> cases = {
      {1},          {31},         {32},          {33},          {40},          {64},
      {32, 32, 32}, {31, 1, 32},  {33, 31},      {31, 33},      {16, 32, 16},  {1, 64, 31},
      {1, 95},      {95, 1},      {64, 1},       {1, 31, 1},    {31, 2, 31},   {5, 300, 5},
      {32, 288, 1}, {31, 290, 1}, {32, 256, 40}, {31, 258, 31}, {12, 257, 30}, {1, 1, 1, 1, 1},
      {32, 1, 63},  {10, 600},    {288},         {289},         {32, 320, 64}};
  for (const auto& lengths : cases) {
    SCOPED_TRACE(::testing::PrintToString(lengths));
    expect_exact(ids_of_runs(lengths), 3 * static_cast<int64_t>(lengths.size()) + 2);
  }
}

TEST_P(EmbeddingOn, EveryTokenCountsOnceInRunsOfAnyLength) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 30; ++trial) {
    std::vector<int64_t> lengths(1 + random() % 20);
    for (auto& length : lengths) length = static_cast<int64_t>(1 + random() % (random() % 4 ? 20 : 200));
    SCOPED_TRACE(::testing::PrintToString(lengths));
    expect_exact(ids_of_runs(lengths, random()), 3 * static_cast<int64_t>(lengths.size()) + 2);
  }
}

TEST_P(EmbeddingOn, TakesManyTokensAndLargeTables) {
  expect_exact(at::full({5003}, 2, at::kLong), 4);                          // all the same
  expect_exact(at::arange(3001, at::kLong).flip(0), 3001);                  // all different
  expect_exact(any_ids(2000, 50000, 5), 50000);                             // few of many
  expect_exact(any_ids(20000, 150, 6).square().div(150, "floor"), 150, 4);  // some often, some seldom
}

TEST_P(EmbeddingOn, NoTokensHaveNoGradient) {
  compare(at::zeros({0}, at::kLong), 5, 8, at::kFloat);
  compare(at::zeros({3, 0}, at::kLong), 5, 8, at::kFloat);
}

TEST_P(EmbeddingOn, TakesBatchesWithPaddingAndViews) {
  auto ids = any_ids(6 * 50, 90, 2).view({6, 50});
  for (int64_t row = 0; row < 6; ++row) ids[row].slice(0, 50 - 7 * row).fill_(0);
  compare(ids, 90, 16, at::kFloat);
  compare(ids.t(), 90, 16, at::kFloat);
  compare(ids.slice(1, 3, 40), 90, 16, at::kFloat);
}

TEST_P(EmbeddingOn, OneOrderServesSeveralTables) {
  const auto ids = any_ids(4 * 40, 30, 2).view({4, 40});
  const auto function = [](const auto& in) {
    const auto order = ops::token_order(in[0], in[3]);
    const auto of = [&](int i) { return ops::embedding(in[i], in[3], order).sum(-1); };
    return of(0) * of(1) + of(2);  // the third has rows of 24 bytes: torch's
  };
  expect_agreement(
      function, function,
      {random_tensor({30, 8}, at::kFloat, 1).to(device), random_tensor({30, 140}, at::kFloat, 2).to(device),
       random_tensor({30, 6}, at::kFloat, 3).to(device), ids.to(device)},
      tolerance(at::kFloat));
}

TEST_P(EmbeddingOn, TakesGradientsThatAreExpandedOrNotAligned) {
  const auto ids = any_ids(100, 9, 2);
  const auto wide = whole_numbers({100 * 8 + 1}, 4).to(device, at::kFloat);
  const auto shifted = wide.slice(0, 1).view({100, 8});
  EXPECT_TRUE(at::equal(gradient(ids, shifted, 9), gradient(ids, shifted.clone(), 9)));
  const auto flat = wide.slice(0, 0, 8).view({1, 8}).expand({100, 8});
  EXPECT_TRUE(at::equal(gradient(ids, flat, 9), gradient(ids, flat.contiguous(), 9)));
}

TEST_P(EmbeddingOn, GivesTheSameBitsAgain) {
  if (!has_kernel()) GTEST_SKIP() << "torch's sums";
  const auto ids = ids_of_runs({1, 700, 30, 2, 64, 5, 5, 130});
  const auto dy = random_tensor({ids.numel(), 16}, at::kFloat, 4).to(device);
  const auto first = gradient(ids, dy, 30);
  for (int again = 0; again < 3; ++again) EXPECT_TRUE(at::equal(gradient(ids, dy, 30), first));
}

TEST_P(EmbeddingOn, WhatIsNoNumberStaysWithItsToken) {
  const auto ids = ids_of_runs({3, 70, 2});
  auto dy = random_tensor({ids.numel(), 8}, at::kFloat, 4);
  dy.select(1, 5).masked_fill_(ids == 4, NAN);
  const auto isnan = gradient(ids, dy.to(device), 9).isnan().to(at::kCPU);
  EXPECT_EQ(isnan.sum().item<int64_t>(), 1);
  EXPECT_TRUE(isnan[4][5].item<bool>());
}

TEST_P(EmbeddingOn, PassesOverIdsThatHaveNoRow) {
  if (!has_kernel()) GTEST_SKIP() << "no kernel";
  constexpr int64_t V = 10, D = 8;
  using Backward = Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t);
  const auto kernel = ops::find_operator<Backward>(kBackward);
  const auto ids = ids_of_runs({50, 3, 40, 1, 70, 2}) - 2;  // -1, 2, 5, 8, 11, 14
  const auto dy = whole_numbers({ids.numel(), D}, 4);
  const auto [sorted, positions] = ids.to(at::kInt).sort(/*stable=*/std::optional(true), 0);
  const auto inside = ((ids >= 0) & (ids < V)).nonzero().squeeze(1);
  const auto wanted =
      at::zeros({V, D}, at::kDouble).index_add_(0, ids.index_select(0, inside), dy.index_select(0, inside));
  const auto got = kernel.call(dy.to(device, at::kFloat), sorted.to(device), positions.to(device), V);
  EXPECT_TRUE(at::equal(got.to(at::kCPU, at::kDouble), wanted));
}

TEST_P(EmbeddingOn, AnOrderIsMadeOnlyWhereAKernelReadsIt) {
  const auto ids = any_ids(50, 9, 2).view({5, 10}).to(device);
  const auto made = [&](const Tensor& weight) { return ops::token_order(weight, ids).ids.defined(); };
  const auto table = [&](int64_t D, at::ScalarType dtype) {
    return random_tensor({9, D}, dtype, 1).to(device).requires_grad_();
  };
  const auto weight = table(8, at::kFloat);
  EXPECT_EQ(made(weight), has_kernel());
  EXPECT_EQ(made(table(8, at::kBFloat16)), has_kernel());
  EXPECT_FALSE(made(weight.detach()));
  EXPECT_FALSE(made(table(6, at::kFloat)));
  EXPECT_FALSE(made(table(4, at::kBFloat16)));
  EXPECT_FALSE(made(table(8, at::kDouble)));
  {
    const c10::NoGradGuard none;
    EXPECT_FALSE(made(weight));
  }
  const PlainScope plain;
  EXPECT_FALSE(made(weight));
}

TEST_P(EmbeddingOn, TheOrderIsSortedAndStable) {
  if (!has_kernel()) GTEST_SKIP() << "no order";
  for (const int64_t N : {1, 100, 5000, 70000}) {
    const auto ids = any_ids(N, 40, 2).to(device);
    const auto order =
        ops::token_order(at::zeros({40, 8}, ids.options().dtype(at::kFloat)).requires_grad_(), ids);
    EXPECT_TRUE(at::equal(ids.index_select(0, order.positions), order.ids.to(at::kLong)));
    const auto key = order.ids.to(at::kLong) * N + order.positions;
    EXPECT_TRUE((key.slice(0, 1) > key.slice(0, 0, N - 1)).all().item<bool>());
  }
}

TEST_P(EmbeddingOn, RefusesTheOrderOfOtherIds) {
  if (!has_kernel()) GTEST_SKIP() << "no order";
  const auto weight = random_tensor({9, 8}, at::kFloat, 1).to(device).requires_grad_();
  const auto ids = any_ids(50, 9, 2).to(device);
  const auto order = ops::token_order(weight, ids);
  EXPECT_THROW(ops::embedding(weight, ids.slice(0, 1), order), c10::Error);
}

TEST_P(EmbeddingOn, ACapturedGraphSortsAndSumsUpWhatIsThereThen) {
  if (!device.is_cuda()) GTEST_SKIP() << "graphs are for a GPU";
  for (const int64_t N : {300, 9000}) {  // torch sorts few and many in different ways
    const auto dy = whole_numbers({N, 8}, 3);
    const auto ids = any_ids(N, 40, 1).to(device), flow = dy.to(device, at::kFloat);
    Tensor found;
    const auto work = [&] { found = gradient(ids, flow, 40); };
    work();
    const auto graph = tightloop::device("cuda").capture(work);
    ASSERT_TRUE(graph);
    for (const uint64_t seed : {2, 3}) {
      const auto others = any_ids(N, 40, seed);
      ids.copy_(others);
      graph->replay();
      const auto wanted = at::zeros({40, 8}, at::kDouble).index_add_(0, others, dy);
      EXPECT_TRUE(at::equal(found.to(at::kCPU, at::kDouble), wanted)) << N << " tokens, seed " << seed;
    }
  }
}

TEST(Embedding, PlainTwinHasTheRightGradient) {
  expect_gradients_by_differences([](const auto& in) { return ops::embedding_plain(in[0], in[1]); },
                                  {random_tensor({5, 3}, at::kDouble, 1), any_ids(8, 5, 2)});
}

TEST(Embedding, RefusesWhatIsNoTableOrNoIds) {
  const auto weight = random_tensor({9, 8}, at::kFloat, 1);
  EXPECT_THROW(ops::embedding(weight[0], any_ids(5, 9, 2)), c10::Error);
  EXPECT_THROW(ops::embedding(weight, random_tensor({5}, at::kFloat, 2)), c10::Error);
}

}  // namespace
}  // namespace tightloop::testing
