#include "ops/loss/fused_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Allocator.h>
#include <c10/core/GradMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>

#include "core/random.h"
#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

// Ignored anywhere: rows here and there, and the middle third, which holds whole chunks.
Tensor targets_of(int64_t N, int64_t V, uint64_t seed) {
  Tensor targets = at::empty({N}, at::kLong);
  Random random(seed);
  for (int64_t i = 0; i < N; ++i) {
    const bool ignored = i % 5 == 3 || (N > 20 && i >= N / 3 && i < 2 * N / 3);
    targets.mutable_data_ptr<int64_t>()[i] =
        ignored ? ops::kIgnoreIndex : static_cast<int64_t>(random.below(V));
  }
  return targets;
}

const std::vector<ops::LossOptions> kOptions{{},
                                             {.softcap = 15},
                                             {.label_smoothing = 0.1},
                                             {.z_loss = 1e-2},
                                             {.softcap = 2, .label_smoothing = 0.2, .z_loss = 1e-2}};

struct Result {
  Tensor loss, d_hidden, d_weight;
};

template <class Head>
Result run(Head head, const Tensor& hidden_in, const Tensor& weight_in, const Tensor& targets,
           ops::LossOptions options, double factor = 1) {
  const bool wide = hidden_in.scalar_type() == at::kDouble;
  options.scale = at::scalar_tensor(factor, hidden_in.options().dtype(wide ? at::kDouble : at::kFloat));
  Tensor hidden = hidden_in.detach().clone().requires_grad_(),
         weight = weight_in.detach().clone().requires_grad_();
  const ops::LossSum loss = head(hidden, weight, targets, options);
  loss.objective.backward();
  return {loss.sum, hidden.grad(), weight.grad()};
}

class FusedHeadOn : public OnDevice {};
ON_EVERY_DEVICE(FusedHeadOn);

TEST_P(FusedHeadOn, AgreesWithThePlainTwin) {
  for (const auto& options : kOptions)
    for (const auto& [N, D, V] : {std::tuple{1, 3, 7}, {37, 16, 129}, {203, 24, 1001}, {64, 8, 64}}) {
      SCOPED_TRACE(::testing::Message()
                   << N << " x " << D << " x " << V << " cap " << options.softcap << " smoothing "
                   << options.label_smoothing << " z " << options.z_loss);
      const Tensor hidden = random_tensor({N, D}, at::kFloat, 1).to(device);
      const Tensor weight = random_tensor({V, D}, at::kFloat, 2, 0.5).to(device);
      const Tensor targets = targets_of(N, V, 3).to(device);
      const auto fused = run(ops::fused_head, hidden, weight, targets, options, 0.25);
      const auto plain = run(ops::fused_head_plain, hidden, weight, targets, options, 0.25);
      EXPECT_LT(relative_error(fused.loss, plain.loss), 1e-6);
      EXPECT_LT(relative_error(fused.d_hidden, plain.d_hidden), 1e-5);
      EXPECT_LT(relative_error(fused.d_weight, plain.d_weight), 1e-5);
    }
}

TEST_P(FusedHeadOn, AgreesInDoubleAndInSixteenBits) {
  const int64_t N = 301, D = 32, V = 211;
  const Tensor targets = targets_of(N, V, 3).to(device);
  for (const auto& [dtype, tolerance] :
       {std::pair{at::kDouble, 1e-12}, {at::kBFloat16, 2e-2}, {at::kHalf, 3e-3}}) {
    SCOPED_TRACE(dtype);
    const Tensor hidden = random_tensor({N, D}, dtype, 1).to(device);
    const Tensor weight = random_tensor({V, D}, dtype, 2, 0.5).to(device);
    const ops::LossOptions options{.softcap = 15, .label_smoothing = 0.1, .z_loss = 1e-3};
    const auto fused = run(ops::fused_head, hidden, weight, targets, options, 1.0 / 37);
    const auto plain = run(ops::fused_head_plain, hidden.to(at::kDouble), weight.to(at::kDouble), targets,
                           options, 1.0 / 37);
    EXPECT_EQ(fused.d_weight.scalar_type(), dtype);
    EXPECT_LT(relative_error(fused.loss, plain.loss), tolerance);
    EXPECT_LT(relative_error(fused.d_hidden, plain.d_hidden), tolerance);
    EXPECT_LT(relative_error(fused.d_weight, plain.d_weight), tolerance);
  }
}

TEST_P(FusedHeadOn, NothingToLearnGivesNothing) {
  const Tensor hidden = random_tensor({50, 8}, at::kFloat, 1).to(device),
               weight = random_tensor({33, 8}, at::kFloat, 2).to(device);
  const auto none = run(ops::fused_head, hidden, weight,
                        at::full({50}, ops::kIgnoreIndex, at::kLong).to(device), {.softcap = 5});
  EXPECT_EQ(none.loss.item<double>(), 0);
  EXPECT_TRUE(at::equal(none.d_hidden, at::zeros_like(hidden)));
  EXPECT_TRUE(at::equal(none.d_weight, at::zeros_like(weight)));
}

// More rows than a GPU takes at a time, the last chunk smaller, against whole logits in fp64.
TEST_P(FusedHeadOn, AddsUpManyChunks) {
  const int64_t N = device.is_cuda() ? 2 * 4096 + 77 : 500, D = 16, V = 257;
  for (const auto& [dtype, tolerance] : {std::pair{at::kFloat, 1e-5}, {at::kBFloat16, 2e-2}}) {
    const Tensor hidden = random_tensor({N, D}, dtype, 1).to(device),
                 weight = random_tensor({V, D}, dtype, 2, 0.5).to(device);
    const Tensor targets = targets_of(N, V, 3).to(device);
    EXPECT_LT(ops::fused_head_rows(hidden), N);
    const auto fused = run(ops::fused_head, hidden, weight, targets, kOptions.back(), 1.0 / 37);
    const auto plain = run(ops::fused_head_plain, hidden.to(at::kDouble), weight.to(at::kDouble), targets,
                           kOptions.back(), 1.0 / 37);
    EXPECT_LT(relative_error(fused.loss, plain.loss), tolerance) << dtype;
    EXPECT_LT(relative_error(fused.d_hidden, plain.d_hidden), tolerance) << dtype;
    EXPECT_LT(relative_error(fused.d_weight, plain.d_weight), tolerance) << dtype;
  }
}

TEST_P(FusedHeadOn, NoRowsGiveNoGradient) {
  const Tensor hidden = at::empty({0, 8}, at::TensorOptions(device)),
               weight = random_tensor({33, 8}, at::kFloat, 2).to(device);
  const auto none =
      run(ops::fused_head, hidden, weight, at::empty({0}, at::TensorOptions(device).dtype(at::kLong)), {});
  EXPECT_EQ(none.loss.item<double>(), 0);
  EXPECT_TRUE(at::equal(none.d_weight, at::zeros_like(weight)));
}

TEST(FusedHead, GivesLossesOfRowsAndCounts) {
  const Tensor hidden = random_tensor({90, 8}, at::kFloat, 1), weight = random_tensor({33, 8}, at::kFloat, 2);
  const Tensor targets = targets_of(90, 33, 3);
  const c10::NoGradGuard none;
  const ops::LossOptions options{.scale = at::scalar_tensor(0.5f), .correct = true};
  const auto fused = ops::fused_head(hidden, weight, targets, options),
             plain = ops::fused_head_plain(hidden, weight, targets, options);
  EXPECT_TRUE(at::equal(fused.count, plain.count));
  EXPECT_LT(relative_error(fused.losses, plain.losses), 1e-6);
  EXPECT_EQ(fused.objective.item<float>(), 0.5f * fused.sum.item<float>());
  EXPECT_TRUE(at::equal(fused.correct, plain.correct));
  EXPECT_FALSE(fused.objective.requires_grad());
}

TEST(FusedHead, OnlyGivesTheGradientsAskedFor) {
  const Tensor targets = targets_of(64, 33, 3);
  Tensor hidden = random_tensor({64, 8}, at::kFloat, 1), weight = random_tensor({33, 8}, at::kFloat, 2);
  const auto both = run(ops::fused_head, hidden, weight, targets, {});
  weight.requires_grad_();
  ops::fused_head(hidden, weight, targets).objective.backward();
  EXPECT_TRUE(at::equal(weight.grad(), both.d_weight));
  weight = weight.detach(), hidden.requires_grad_();
  ops::fused_head(hidden, weight, targets).objective.backward();
  EXPECT_TRUE(at::equal(hidden.grad(), both.d_hidden));
}

/// Bytes of torch's CPU tensors that are held, and the most that were.
struct Held : c10::MemoryReportingInfoBase {
  int64_t now = 0, most = 0;
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    now += size;
    most = std::max(most, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
};

template <class Body>
int64_t most_held(Body&& body) {
  auto held = std::make_shared<Held>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, held);
  body();
  return held->most;
}

TEST(FusedHead, NeverHoldsMoreThanAnEighthOfTheLogits) {
  const int64_t N = 1031, D = 4, V = 1999;
  const Tensor targets = targets_of(N, V, 3);
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto& options : kOptions) {
      SCOPED_TRACE(::testing::Message() << dtype << " cap " << options.softcap);
      const Tensor hidden = random_tensor({N, D}, dtype, 1), weight = random_tensor({V, D}, dtype, 2, 0.5);
      const int64_t logits = N * V * static_cast<int64_t>(hidden.element_size());
      const int64_t fused = most_held([&] { run(ops::fused_head, hidden, weight, targets, options); });
      EXPECT_LE(fused, logits / 8) << "with the results, which are no logits";
      const int64_t plain = most_held([&] { run(ops::fused_head_plain, hidden, weight, targets, options); });
      EXPECT_GE(plain, logits) << "or nothing was counted";
    }
}

}  // namespace
}  // namespace tightloop::testing
