#include "train/optim/gradient_buckets.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>

#include "dist/several.h"
#include "ops/compare.h"
#include "train/optim/gradient_exchange.h"
#include "train/optim/optimizer.h"

namespace tightloop::testing {
namespace {

using at::Tensor;
using Indices = std::vector<size_t>;

Tensor of(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) { return at::empty(sizes, dtype); }

struct WholeBuckets : GradientBuckets {
  explicit WholeBuckets(const std::vector<Tensor>& like, int64_t bytes = 25 << 20)
      : GradientBuckets(ShardPlan(planned(like), {.bytes = bytes}), like, Keep::kAll) {}
  Indices parameters(size_t bucket) const {
    Indices indices;
    for (const auto& piece : buckets()[bucket].extent->pieces) indices.push_back(piece.parameter);
    return indices;
  }
};

TEST(GradientBuckets, AreFilledFromTheLastParameterToTheFirst) {
  // 512 bytes are 128 values of fp32.
  const WholeBuckets gradients({of({128}), of({2, 64}), of({1000}), of({3}), of({5, 5})}, 1024);
  ASSERT_EQ(gradients.buckets().size(), 3U);
  EXPECT_EQ(gradients.parameters(0), (Indices{4, 3}));
  EXPECT_EQ(gradients.parameters(1), (Indices{2})) << "larger than a bucket";
  EXPECT_EQ(gradients.parameters(2), (Indices{1, 0}));
  EXPECT_EQ(gradients.buckets()[0].flat.numel(), 256);
  EXPECT_EQ(gradients.buckets()[1].flat.numel(), 1024);
  EXPECT_EQ(gradients.buckets()[2].flat.numel(), 256);
}

TEST(GradientBuckets, GradientsAreAlignedViewsOfThem) {
  const std::vector<Tensor> like{of({3, 7}), of({2, 5, 3}, at::kBFloat16), of({200}), of({1}, at::kBFloat16)};
  const WholeBuckets gradients(like);
  ASSERT_EQ(gradients.buckets().size(), 2U) << "one for each dtype";
  EXPECT_EQ(gradients.parameters(0), (Indices{3, 1}));
  EXPECT_EQ(gradients.parameters(1), (Indices{2, 0}));
  for (size_t b = 0; b < gradients.buckets().size(); ++b) {
    const auto& bucket = gradients.buckets()[b];
    int64_t begin = 0;
    for (const size_t i : gradients.parameters(b)) {
      const Tensor& gradient = gradients.gradients()[i];
      EXPECT_EQ(gradient.sizes(), like[i].sizes());
      EXPECT_EQ(gradient.scalar_type(), like[i].scalar_type());
      EXPECT_EQ(gradient.abs().max().item<double>(), 0);
      gradient.fill_(static_cast<double>(i + 1));
      EXPECT_EQ(gradient.storage_offset() * gradient.element_size() % ShardPlan::kAlignment, 0);
      const Tensor there = bucket.flat.narrow(0, begin, gradient.numel());
      EXPECT_EQ(there.const_data_ptr(), gradient.const_data_ptr());
      begin += (gradient.numel() * gradient.element_size() + 511) / 512 * 512 / gradient.element_size();
    }
    EXPECT_EQ(bucket.flat.numel(), begin);
  }
  for (size_t i = 0; i < like.size(); ++i)
    EXPECT_TRUE((gradients.gradients()[i] == static_cast<double>(i + 1)).all().item<bool>())
        << "none overlap";
}

// The same bits as tensors that travel one by one.
TEST(GradientBuckets, AreAddedUpOverProcesses) {
  if (!in_child()) return expect_success(2);
  Processes processes;
  std::vector<Tensor> wanted;
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (uint64_t i = 1; i < 20; ++i)
      wanted.push_back(random_tensor({static_cast<int64_t>(i * i), 7}, dtype,
                                     i + 100 * static_cast<uint64_t>(processes.rank())));
  WholeBuckets gradients(wanted, 4096);
  EXPECT_GT(gradients.buckets().size(), 5U);
  for (size_t i = 0; i < wanted.size(); ++i) {
    gradients.gradients()[i].copy_(wanted[i]);
    processes.sum_({wanted[i]});
  }
  for (size_t b = 0; b < gradients.buckets().size(); ++b) gradients.reduce(b, processes, true).wait();
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(at::equal(gradients.gradients()[i], wanted[i])) << i;
  for (size_t b = 0; b < gradients.buckets().size(); ++b) {
    const auto& bucket = gradients.buckets()[b];
    Tensor rest = bucket.flat.clone();
    for (const size_t i : gradients.parameters(b)) {
      const int64_t begin = gradients.gradients()[i].storage_offset() - bucket.flat.storage_offset();
      rest.narrow(0, begin, wanted[i].numel()).zero_();
    }
    EXPECT_EQ(rest.abs().max().item<double>(), 0) << "nothing between them";
  }
}

// A captured graph collects gradients without the host, and what it left is exchanged all the same.
TEST(GradientExchange, AddsUpWhatAReplayedGraphHasCollected) {
  if (!in_child()) return expect_success(2);
  Processes processes;
  std::vector<Tensor> parameters{random_tensor({40, 7}, at::kFloat, 1), random_tensor({300}, at::kFloat, 2)};
  for (auto& parameter : parameters) parameter.requires_grad_();
  WholeBuckets buckets(parameters, 1024);
  GradientExchange exchange(parameters, buckets, &processes, /*set_to_none=*/true);
  for (int step = 0; step < 3; ++step) {
    if (step == 0) {
      for (const auto& parameter : parameters)
        parameter.mutable_grad() = at::full_like(parameter, processes.rank() + 1);
      exchange.collect(/*first=*/true);
    } else {
      for (const auto& gradient : buckets.gradients()) gradient.fill_(processes.rank() + 1);
    }
    exchange.finish();
    for (const auto& gradient : buckets.gradients()) EXPECT_TRUE((gradient == 3).all().item<bool>()) << step;
  }
}

TEST(GradientBuckets, AreWhereAnOptimizerAddsUpFromTheStart) {
  Parameters parameters(3);
  const Tensor matrix = parameters.add("matrix", {5, 3}, {}, ParameterRole::kMatrix),
               vector = parameters.add("vector", {3}, {}, ParameterRole::kNorm);
  TrainConfig config;
  config.accumulate = 2;
  Optimizer optimizer(parameters, config, ModelConfig{}, at::kBFloat16);
  const auto before = optimizer.gradients();
  ASSERT_EQ(before.size(), 2U);
  EXPECT_TRUE(before[0].is_alias_of(before[1]));
  for (int step = 0; step < 2; ++step) {
    for (const bool first : {true, false}) {
      matrix.mutable_grad() = at::full({5, 3}, 256, at::kBFloat16);
      vector.mutable_grad() = at::full({3}, 1, at::kBFloat16);
      optimizer.accumulate({first, !first});
      EXPECT_FALSE(matrix.grad().defined());
    }
    EXPECT_EQ(optimizer.gradients()[0].scalar_type(), at::kFloat);
    EXPECT_TRUE((optimizer.gradients()[0] == 512).all().item<bool>());
    EXPECT_TRUE((optimizer.gradients()[1] == 2).all().item<bool>());
    optimizer.step({.lr_scale = 1}, 1);
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_EQ(optimizer.gradients()[i].const_data_ptr(), before[i].const_data_ptr());
  }
}

}  // namespace
}  // namespace tightloop::testing
