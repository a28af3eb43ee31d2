#include "ops/loss/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>

#include "core/random.h"
#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

Tensor random_targets(int64_t N, int64_t V, uint64_t seed) {
  Tensor targets = at::empty({N}, at::kLong);
  Random random(seed);
  for (int64_t i = 0; i < N; ++i)
    targets.mutable_data_ptr<int64_t>()[i] =
        i % 5 == 3 ? ops::kIgnoreIndex : static_cast<int64_t>(random.below(V));
  return targets;
}

Tensor plain(const std::vector<Tensor>& in) { return ops::cross_entropy_plain(in[0], in[1]).objective; }

/// Everything a loss gives, on tensors of some dtype and device, against the plain twin on the same values in
/// fp64 on the CPU.
void expect_agreement(const Tensor& logits, const Tensor& targets, double tolerance,
                      ops::LossOptions options = {}, double scale = -0.75) {
  const auto run = [&](auto function, Tensor x, const Tensor& to) {
    options.correct = true;
    options.scale = at::scalar_tensor(
        scale, x.options().dtype(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
    x.requires_grad_();
    const ops::LossSum loss = function(x, to, options);
    return std::pair{loss, torch::autograd::grad({loss.objective}, {x})[0]};
  };
  const auto [got, gradient] = run(ops::cross_entropy, logits.detach(), targets);
  const auto [wanted, exact] =
      run(ops::cross_entropy_plain, logits.detach().to(at::kCPU, at::kDouble), targets.cpu());
  const double of_sums = logits.scalar_type() == at::kDouble ? tolerance : 2e-6;  // computed in fp32
  EXPECT_LE(relative_error(got.objective, wanted.objective), of_sums);
  EXPECT_LE(relative_error(got.sum, wanted.sum), of_sums);
  EXPECT_LE(relative_error(got.losses, wanted.losses), of_sums);
  EXPECT_LE(relative_error(gradient, exact), tolerance);
  EXPECT_EQ(gradient.scalar_type(), logits.scalar_type());
  EXPECT_TRUE(at::equal(got.correct.cpu(), wanted.correct));
  EXPECT_TRUE(at::equal(got.count.cpu(), wanted.count));
  EXPECT_FALSE(got.sum.requires_grad() || got.losses.requires_grad());
}

class CrossEntropyOn : public OnDevice {};
ON_EVERY_DEVICE(CrossEntropyOn);

TEST_P(CrossEntropyOn, AgreesWithThePlainTwin) {
  for (const int64_t V : {1, 7, 64, 129, 1000})
    for (const int64_t N : {0, 1, 4, 300})
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
        SCOPED_TRACE(::testing::Message() << N << " x " << V << ' ' << dtype << ' ' << device);
        const Tensor logits = random_tensor({N, V}, dtype, 1, 4.0).to(device);
        expect_agreement(logits, random_targets(N, V, 2).to(device), tolerance(dtype));
      }
}

TEST_P(CrossEntropyOn, AgreesWithEveryOption) {
  const std::vector<ops::LossOptions> all{
      {.softcap = 15},        {.softcap = 0.5}, {.label_smoothing = 0.1},
      {.label_smoothing = 1}, {.z_loss = 1e-2}, {.softcap = 3, .label_smoothing = 0.3, .z_loss = 1e-3}};
  for (const auto& options : all)
    for (const int64_t V : {2, 7, 1000})
      for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble, at::kHalf}) {
        if (dtype == at::kHalf && device.is_cpu()) continue;
        SCOPED_TRACE(::testing::Message() << V << ' ' << dtype << " cap " << options.softcap << " smoothing "
                                          << options.label_smoothing << " z " << options.z_loss);
        const Tensor logits = random_tensor({60, V}, dtype, 1, 4.0).to(device);
        expect_agreement(logits, random_targets(60, V, 2).to(device), 2 * tolerance(dtype), options);
      }
}

// Rows that a GPU keeps in shared memory with others beside them, alone, and only in part; short ones; all at
// every offset from a 16-byte boundary.
TEST_P(CrossEntropyOn, AgreesOnLongRows) {
  const bool gpu = device.is_cuda();
  for (const int64_t V : {8191, 8193, 50257, 70001, gpu ? 151937 : 9001})
    for (const auto dtype : {at::kFloat, at::kBFloat16})
      for (const bool every : {false, true}) {
        SCOPED_TRACE(::testing::Message() << V << ' ' << dtype << ' ' << device << " options " << every);
        ops::LossOptions options;
        if (every) options = {.softcap = 30, .label_smoothing = 0.1, .z_loss = 1e-4};
        const int64_t N = gpu ? 9 : 2;
        const Tensor logits = random_tensor({N, V}, dtype, 1, 4.0).to(device);
        expect_agreement(logits, random_targets(N, V, 2).to(device), 2 * tolerance(dtype), options);
      }
}

// A GPU's block that has several rows fetches the next one while it writes: the same bits as row by row.
TEST_P(CrossEntropyOn, ManyRowsAreTheRowsAlone) {
  const int64_t N = device.is_cuda() ? 600 : 7;
  for (const int64_t V : {9001, 32768, 50257, device.is_cuda() ? 151937 : 9008})
    for (const double softcap : {0.0, 15.0}) {
      SCOPED_TRACE(::testing::Message() << V << " cap " << softcap << ' ' << device);
      const ops::LossOptions options{.softcap = softcap};
      const Tensor targets = random_targets(N, V, 2).to(device);
      Tensor together = random_tensor({N, V}, at::kBFloat16, 1, 4.0).to(device);
      Tensor alone = together.clone();
      const auto losses = [&] { return at::empty({N}, targets.options().dtype(at::kFloat)); };
      const ops::LossRows all{losses(), together}, each{losses(), alone};
      ops::cross_entropy_rows(together, targets, all, options);
      for (int64_t row = 0; row < N; ++row) {
        const auto one = [&](const Tensor& x) { return x.narrow(0, row, 1); };
        ops::cross_entropy_rows(one(alone), one(targets), {one(each.losses), one(alone)}, options);
      }
      EXPECT_TRUE(at::equal(all.losses, each.losses));
      EXPECT_TRUE(at::equal(together, alone));
    }
}

TEST_P(CrossEntropyOn, WritesTheGradientWhereItIsTold) {
  ops::LossOptions options{.softcap = 5, .label_smoothing = 0.1, .z_loss = 1e-2};
  options.scale = at::scalar_tensor(3.0f, at::TensorOptions(device));
  for (const int64_t V : {33, 9001}) {
    const Tensor logits = random_tensor({40, V}, at::kFloat, 1, 4.0).to(device);
    const Tensor targets = random_targets(40, V, 2).to(device);
    Tensor leaf = logits.clone().requires_grad_();
    const auto plain = ops::cross_entropy_plain(leaf, targets, options);
    const Tensor wanted = torch::autograd::grad({plain.objective}, {leaf})[0];
    EXPECT_EQ(plain.losses[3].item<float>(), 0.0f) << "ignored";
    const auto expect_written = [&](const Tensor& from, const Tensor& to, const char* what) {
      const ops::LossRows rows{at::empty({40}, logits.options()), to};
      ops::cross_entropy_rows(from, targets, rows, options);
      EXPECT_LT(relative_error(rows.losses, plain.losses), 2e-6) << what;
      EXPECT_LT(relative_error(to, wanted), 4e-6) << what;
      EXPECT_EQ(to[3].abs().max().item<float>(), 0.0f) << what;
    };
    const Tensor same = logits.clone();
    expect_written(same, same, "in place");
    // An element past a 16-byte boundary where the logits are on one.
    expect_written(logits, at::empty({40 * V + 1}, logits.options()).narrow(0, 1, 40 * V).view({40, V}),
                   "not aligned alike");
    if (!device.is_cuda() && !kFibers) continue;
    const Tensor wide = at::full({40, V + 7}, 7.0f, logits.options()), inside = wide.narrow(1, 3, V);
    inside.copy_(logits);
    expect_written(inside, inside, "rows of a wider matrix");
    EXPECT_TRUE((wide.narrow(1, 0, 3) == 7).all().item<bool>() &&
                (wide.narrow(1, 3 + V, 4) == 7).all().item<bool>());
  }
}

TEST_P(CrossEntropyOn, TakesTheMemoryOfLogitsThatNobodyHolds) {
  const Tensor hidden = random_tensor({30, 8}, at::kFloat, 1).to(device);
  const Tensor targets = random_targets(30, 50, 2).to(device);
  const auto gradient = [&](auto loss_of) {
    Tensor weight = random_tensor({50, 8}, at::kFloat, 3).to(device).requires_grad_();
    loss_of(weight).objective.backward();
    return weight.grad();
  };
  const Tensor wanted =
      gradient([&](const Tensor& w) { return ops::cross_entropy_plain(at::linear(hidden, w), targets); });
  const void* at = nullptr;
  const Tensor taken = gradient([&](const Tensor& w) {
    Tensor logits = at::linear(hidden, w);
    at = logits.const_data_ptr();
    const auto loss = ops::cross_entropy(std::move(logits), targets);
    EXPECT_NE(at::empty({30, 50}, hidden.options()).const_data_ptr(), at) << "still in use: by the gradient";
    return loss;
  });
  EXPECT_LT(relative_error(taken, wanted), 4e-6);
  // Held by the caller; by an operator that needs its result for backward; by a view.
  const Tensor held = gradient([&](const Tensor& w) {
    const Tensor logits = at::linear(hidden, w), before = logits.detach().clone();
    const auto loss = ops::cross_entropy(logits, targets);
    EXPECT_TRUE(at::equal(logits, before));
    return loss;
  });
  EXPECT_LT(relative_error(held, wanted), 4e-6);
  const auto squashed = [&](auto function) {
    return gradient([&](const Tensor& w) { return function(at::tanh(at::linear(hidden, w)), targets, {}); });
  };
  EXPECT_LT(relative_error(squashed(ops::cross_entropy), squashed(ops::cross_entropy_plain)), 4e-6);
  const Tensor viewed = gradient([&](const Tensor& w) {
    const Tensor base = at::linear(hidden, w).view({3, 10, 50}), before = base.detach().clone();
    const auto loss = ops::cross_entropy(base.view({30, 50}), targets);
    EXPECT_TRUE(at::equal(base, before));
    return loss;
  });
  EXPECT_LT(relative_error(viewed, wanted), 4e-6);
}

TEST_P(CrossEntropyOn, TellsWhereTheTargetIsLargest) {
  // The largest; beaten; the first of equals; the second of equals; ignored; a mask of -inf.
  const float none = -std::numeric_limits<float>::infinity();
  const Tensor logits =
      at::tensor({1.f, 3.f, 2.f, 1.f, 3.f, 2.f, 5.f, 1.f, 5.f, 5.f, 1.f, 5.f, 9.f, 1.f, 2.f, none, none, 2.f})
          .view({6, 3})
          .to(device);
  const Tensor targets = at::tensor(std::vector<int64_t>{1, 2, 0, 2, ops::kIgnoreIndex, 2}).to(device);
  const Tensor wanted = at::tensor(std::vector<int64_t>{1, 0, 1, 0, 0, 1}).to(at::kBool);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const auto loss = ops::cross_entropy(logits.to(dtype), targets, {.correct = true});
    EXPECT_TRUE(at::equal(loss.correct.cpu(), wanted)) << dtype << loss.correct;
  }
  EXPECT_FALSE(ops::cross_entropy(logits, targets).correct.defined());
}

TEST_P(CrossEntropyOn, CountsTheTargetsThatCount) {
  const Tensor logits = random_tensor({10, 6}, at::kFloat, 1).to(device);
  const auto loss = ops::cross_entropy(logits, random_targets(10, 6, 2).to(device));
  EXPECT_EQ(loss.count.item<int64_t>(), 8);
  EXPECT_EQ(loss.sum.scalar_type(), at::kFloat);
  EXPECT_EQ(loss.count.scalar_type(), at::kLong);
  EXPECT_EQ(loss.sum.device(), logits.device());
  const auto none = ops::cross_entropy(logits, at::full({10}, ops::kIgnoreIndex, at::kLong).to(device));
  EXPECT_EQ(none.sum.item<float>(), 0.0f);
  EXPECT_EQ(none.count.item<int64_t>(), 0);
}

TEST_P(CrossEntropyOn, GivesTheSameBitsAgain) {
  const Tensor targets = random_targets(50, 9001, 2).to(device);
  Tensor logits = random_tensor({50, 9001}, at::kBFloat16, 1, 4.0).to(device).requires_grad_();
  const auto run = [&] {
    const auto loss = ops::cross_entropy(logits, targets, {.label_smoothing = 0.1, .z_loss = 1e-3});
    return std::tuple{loss.sum, loss.losses, torch::autograd::grad({loss.objective}, {logits})[0]};
  };
  const auto [sum, losses, gradient] = run();
  for (int again = 0; again < 3; ++again) {
    const auto [sum2, losses2, gradient2] = run();
    EXPECT_TRUE(at::equal(sum, sum2) && at::equal(losses, losses2) && at::equal(gradient, gradient2));
  }
}

TEST_P(CrossEntropyOn, ShowsTargetsOutsideTheVocabulary) {
  if (!device.is_cuda() && !kFibers) GTEST_SKIP() << "an error on the CPU";
  const Tensor logits = random_tensor({3, 40}, at::kFloat, 1).to(device);
  const Tensor targets = at::tensor(std::vector<int64_t>{5, 40, -1}).to(device);
  Tensor leaf = logits.clone().requires_grad_();
  const auto loss = ops::cross_entropy(leaf, targets, {.correct = true});
  EXPECT_FALSE(loss.losses.isnan()[0].item<bool>());
  EXPECT_TRUE(loss.losses.isnan()[1].item<bool>() && loss.losses.isnan()[2].item<bool>());
  EXPECT_TRUE(loss.sum.isnan().item<bool>());
}

TEST(CrossEntropy, RefusesToBeScaledOutside) {
  const Tensor targets = random_targets(20, 9, 2);
  Tensor logits = random_tensor({20, 9}, at::kFloat, 1).requires_grad_();
  const auto loss = ops::cross_entropy(logits, targets);
  EXPECT_THROW((loss.objective * 0.25).backward(), c10::Error);
  (ops::cross_entropy(logits, targets).objective + logits.sum() * 0.25).backward();
  EXPECT_THROW(ops::cross_entropy(logits, targets, {.scale = at::scalar_tensor(1.0, at::kDouble)}),
               c10::Error);
  EXPECT_THROW(ops::cross_entropy(logits, targets, {.scale = at::zeros({2})}), c10::Error);
}

TEST(CrossEntropy, AccumulatesIntoALeaf) {
  const Tensor targets = random_targets(6, 5, 2);
  Tensor logits = random_tensor({6, 5}, at::kFloat, 1).requires_grad_();
  ops::cross_entropy(logits, targets).objective.backward();
  const Tensor once = logits.grad().clone();
  ops::cross_entropy(logits, targets).objective.backward();
  EXPECT_TRUE(at::equal(logits.grad(), once + once));
}

TEST(CrossEntropy, StaysFiniteWithLargeLogits) {
  Tensor logits = at::tensor({1e4f, -1e4f, 0.0f, 0.0f, -300.0f, 20.0f}).view({2, 3}).requires_grad_();
  const auto loss = ops::cross_entropy(logits, at::tensor({int64_t{1}, int64_t{2}}));
  EXPECT_NEAR(loss.sum.item<double>(), 2e4, 1e-2);
  const Tensor gradient = torch::autograd::grad({loss.objective}, {logits})[0];
  EXPECT_FALSE(gradient.isnan().any().item<bool>());
  EXPECT_NEAR(gradient[0][0].item<double>(), 1.0, 1e-6);
  EXPECT_NEAR(gradient[1][2].item<double>(), 0.0, 1e-6);
}

TEST(CrossEntropy, ShowsNaN) {
  const Tensor logits = at::tensor({1.0f, std::numeric_limits<float>::quiet_NaN(), 2.0f}).view({1, 3});
  EXPECT_TRUE(std::isnan(ops::cross_entropy(logits, at::tensor({int64_t{0}})).sum.item<float>()));
}

TEST(CrossEntropy, WorksWithoutGradients) {
  Tensor logits = random_tensor({5, 8}, at::kFloat, 1).requires_grad_();
  const Tensor targets = random_targets(5, 8, 2);
  const c10::NoGradGuard none;
  EXPECT_FALSE(ops::cross_entropy(logits, targets).objective.requires_grad());
}

TEST(CrossEntropy, TakesViews) {
  const Tensor base = random_tensor({7, 30}, at::kFloat, 1);
  const Tensor targets = random_targets(60, 7, 2).slice(0, 0, 60, 2);
  expect_agreement(base.transpose(0, 1), targets, tolerance(at::kFloat));
}

TEST(CrossEntropy, PlainTwinHasTheRightGradient) {
  const Tensor targets = random_targets(4, 5, 2);
  expect_gradients_by_differences(plain, {random_tensor({4, 5}, at::kDouble, 1), targets});
}

TEST(CrossEntropy, PlainTwinHasTheRightGradientWithEveryOption) {
  const Tensor targets = random_targets(4, 5, 2);
  const auto plain = [](const std::vector<Tensor>& in) {
    return ops::cross_entropy_plain(in[0], in[1], {.softcap = 2, .label_smoothing = 0.2, .z_loss = 0.1})
        .objective;
  };
  expect_gradients_by_differences(plain, {random_tensor({4, 5}, at::kDouble, 1), targets});
}

TEST(CrossEntropy, RefusesTargetsOutsideTheVocabulary) {
  const Tensor logits = random_tensor({2, 4}, at::kFloat, 1);
  EXPECT_THROW(ops::cross_entropy(logits, at::tensor({int64_t{0}})), c10::Error);
  if (kFibers) GTEST_SKIP() << "a GPU shows NaN";
  EXPECT_THROW(ops::cross_entropy(logits, at::tensor({int64_t{0}, int64_t{4}})), c10::Error);
  EXPECT_THROW(ops::cross_entropy(logits, at::tensor({int64_t{0}, int64_t{-1}})), c10::Error);
}

}  // namespace
}  // namespace tightloop::testing
