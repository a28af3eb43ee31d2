#include "train/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "support.h"

namespace tightloop {
namespace {

using testing::error_of;

struct Fixture {
  Parameters parameters{5};
  at::Tensor matrix = parameters.add("matrix", {6, 4}, {Init::kNormal, 1.0});
  at::Tensor vector = parameters.add("vector", {4}, {Init::kOnes});
  TrainConfig config;
};

// AdamW as the paper writes it, in double.
struct Reference {
  at::Tensor value, first, second;
  explicit Reference(const at::Tensor& start)
      : value(start.detach().to(at::kDouble)), first(at::zeros_like(value)), second(at::zeros_like(value)) {}
  void step(const at::Tensor& gradient, const TrainConfig& c, double lr, double decay, int64_t t) {
    first = first * c.beta1 + gradient * (1 - c.beta1);
    second = second * c.beta2 + gradient * gradient * (1 - c.beta2);
    const auto m = first / (1 - std::pow(c.beta1, t)), v = second / (1 - std::pow(c.beta2, t));
    value = value * (1 - lr * decay) - m / (at::sqrt(v) + c.eps) * lr;
  }
};

TEST(AdamW, FollowsThePaperWithClippingAndTokenCounts) {
  Fixture f;
  f.config.clip = 0.7, f.config.weight_decay = 0.3;
  Reference matrix(f.matrix), vector(f.vector);
  AdamW optimizer(f.parameters, f.config, at::kFloat);
  for (int64_t t = 1; t <= 50; ++t) {
    const auto gm = at::randn_like(f.matrix.detach()), gv = at::randn_like(f.vector.detach());
    f.matrix.mutable_grad() = gm.clone(), f.vector.mutable_grad() = gv.clone();
    optimizer.accumulate();
    const int64_t tokens = 3 + t % 4;
    const double norm = optimizer.step(1e-2, tokens).item<double>();
    const auto mean_m = gm.to(at::kDouble) / tokens, mean_v = gv.to(at::kDouble) / tokens;
    const double expected = std::sqrt((mean_m.pow(2).sum() + mean_v.pow(2).sum()).item<double>());
    EXPECT_NEAR(norm, expected, 1e-5 * expected);
    const double scale = std::min(1.0, 0.7 / expected);
    matrix.step(mean_m * scale, f.config, 1e-2, 0.3, t);
    vector.step(mean_v * scale, f.config, 1e-2, 0.0, t);
  }
  EXPECT_LT((f.matrix - matrix.value).abs().max().item<double>(), 1e-5);
  EXPECT_LT((f.vector - vector.value).abs().max().item<double>(), 1e-5);
}

TEST(AdamW, AccumulatingIsAdding) {
  Fixture once, twice;
  const auto a = at::randn_like(once.matrix.detach()), b = at::randn_like(once.matrix.detach());
  const auto v = at::randn_like(once.vector.detach());
  AdamW first(once.parameters, once.config, at::kFloat), second(twice.parameters, twice.config, at::kFloat);
  once.matrix.mutable_grad() = a + b, once.vector.mutable_grad() = v + v;
  first.accumulate();
  first.step(1e-2, 10);
  for (const auto& g : {a, b}) {
    twice.matrix.mutable_grad() = g.clone(), twice.vector.mutable_grad() = v.clone();
    second.accumulate();
    EXPECT_FALSE(twice.matrix.grad().defined()) << "cleared, not zeroed";
  }
  second.step(1e-2, 10);
  EXPECT_TRUE(at::equal(once.matrix, twice.matrix));
  EXPECT_TRUE(at::equal(once.vector, twice.vector));
}

TEST(AdamW, SmallUpdatesSurviveBf16) {
  Fixture f;
  f.config.weight_decay = 0;
  AdamW optimizer(f.parameters, f.config, at::kBFloat16);
  const auto before = optimizer.weights()[1].second.clone();
  EXPECT_EQ(f.vector.scalar_type(), at::kBFloat16);
  for (int step = 0; step < 100; ++step) {
    f.matrix.mutable_grad() = at::full_like(f.matrix.detach(), 1.0),
    f.vector.mutable_grad() = at::full_like(f.vector.detach(), 1.0);
    optimizer.accumulate();
    optimizer.step(1e-4, 1);  // 1 - 1e-4 rounds to 1 in bf16
  }
  EXPECT_NEAR((before - optimizer.weights()[1].second).mean().item<double>(), 1e-2, 1e-4);
  EXPECT_NEAR(f.vector.to(at::kFloat).mean().item<double>(), 0.99, 4e-3)
      << "the model sees the masters, rounded";
}

TEST(AdamW, WeightsThatDoNotFitAreNamed) {
  Fixture f;
  Safetensors file;
  file.tensors["matrix"] = at::zeros_like(f.matrix.detach());
  EXPECT_NE(
      error_of(ExitCode::kCheckpoint, [&] { load_weights(f.parameters, file, "file"); }).find("'vector'"),
      std::string::npos);
  file.tensors["vector"] = at::zeros_like(f.matrix.detach());
  const auto message = error_of(ExitCode::kCheckpoint, [&] { load_weights(f.parameters, file, "file"); });
  EXPECT_NE(message.find("[6, 4]"), std::string::npos) << message;
  EXPECT_NE(message.find("[4]"), std::string::npos) << message;
  file.tensors["vector"] = at::zeros_like(f.vector.detach());
  file.tensors["more"] = at::zeros_like(f.vector.detach());
  EXPECT_NE(error_of(ExitCode::kCheckpoint, [&] { load_weights(f.parameters, file, "file"); }).find("'more'"),
            std::string::npos);
}

TEST(LearningRate, RisesThenFalls) {
  TrainConfig config;
  config.lr = 1.0, config.steps = 110, config.warmup_steps = 10, config.min_lr = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate(config, 1), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 10), 1.0);
  EXPECT_NEAR(learning_rate(config, 60), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(config, 110), 0.1, 1e-12);
  for (int64_t step = 11; step < 110; ++step)
    EXPECT_LT(learning_rate(config, step + 1), learning_rate(config, step));
  config.schedule = "linear";
  EXPECT_NEAR(learning_rate(config, 35), 0.1 + 0.9 * 0.75, 1e-12);
  config.schedule = "constant";
  EXPECT_DOUBLE_EQ(learning_rate(config, 110), 1.0);
}

}  // namespace
}  // namespace tightloop
