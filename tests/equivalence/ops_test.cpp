// A whole block of a decoder, trained for some steps on our kernels and on their plain twins.

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <vector>

#include "ops/attention/rope.h"
#include "ops/compare.h"
#include "ops/loss/cross_entropy.h"
#include "ops/norm/rms_norm.h"
#include "ops/pointwise/swiglu.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

constexpr int64_t kBatch = 4, kTime = 12, kHeads = 2, kHeadDim = 8, kModel = 16, kHidden = 20,
                  kVocabulary = 33;

struct Block {
  Tensor embedding, norm1, qkv, out, norm2, gate_up, down, norm3;

  explicit Block(at::Device device) {
    uint64_t seed = 1;
    const auto weight = [&](at::IntArrayRef shape) {
      const double scale = shape.size() == 1 ? 0.1 : 1.0 / std::sqrt(static_cast<double>(shape[1]));
      Tensor values = random_tensor(shape, at::kFloat, seed++, scale);
      if (shape.size() == 1) values += 1.0;
      return values.to(device).requires_grad_();
    };
    embedding = weight({kVocabulary, kModel});
    norm1 = weight({kModel});
    qkv = weight({3 * kModel, kModel});
    out = weight({kModel, kModel});
    norm2 = weight({kModel});
    gate_up = weight({2 * kHidden, kModel});
    down = weight({kModel, kHidden});
    norm3 = weight({kModel});
  }

  std::vector<Tensor> parameters() const { return {embedding, norm1, qkv, out, norm2, gate_up, down, norm3}; }

  ops::LossSum loss(const Tensor& tokens, const Tensor& targets, at::ScalarType dtype) const {
    const auto [cos, sin] = ops::rope_tables(kTime, ops::rope_frequencies(kHeadDim, 10000.0));
    const auto project = [&](const Tensor& x, const Tensor& weight) {
      return at::linear(x, weight.to(dtype));
    };
    Tensor x = at::embedding(embedding, tokens).to(dtype);
    const Tensor fused =
        project(ops::rms_norm(x, norm1, 1e-6), qkv).view({kBatch, kTime, 3 * kHeads, kHeadDim});
    const auto [q, k] = ops::rope(fused.narrow(2, 0, kHeads), fused.narrow(2, kHeads, kHeads),
                                  cos.to(x.device()), sin.to(x.device()));
    const Tensor v = fused.narrow(2, 2 * kHeads, kHeads);
    const Tensor seen =
        at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), {}, 0.0,
                                         /*is_causal=*/true);
    x = x + project(seen.transpose(1, 2).reshape({kBatch, kTime, kModel}), out);
    x = x + project(ops::swiglu(project(ops::rms_norm(x, norm2, 1e-6), gate_up)), down);
    const Tensor logits = project(ops::rms_norm(x, norm3, 1e-6), embedding);
    return ops::cross_entropy(logits.view({-1, kVocabulary}), targets.view({-1}));
  }
};

/// The losses of some steps of gradient descent, at a rate that stays clear of oscillation: that would blow
/// up the last digits.
std::vector<double> train(at::Device device, at::ScalarType dtype, int steps) {
  const Block block(device);
  Tensor tokens =
      random_tensor({kBatch, kTime}, at::kDouble, 50, 10.0).abs().to(at::kLong).clamp_max(kVocabulary - 1);
  Tensor targets = tokens.roll(-1, 1).contiguous();
  targets.select(1, kTime - 1).fill_(ops::kIgnoreIndex);
  tokens = tokens.to(device);
  targets = targets.to(device);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const auto loss = block.loss(tokens, targets, dtype);
    const double count = loss.count.item<double>();
    losses.push_back(loss.sum.item<double>() / count);
    const auto gradients = torch::autograd::grad({loss.objective}, block.parameters());
    const c10::NoGradGuard none;
    auto parameters = block.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].sub_(gradients[i], 0.1 / count);
  }
  return losses;
}

void compare(at::Device device, at::ScalarType dtype, double tolerance) {
  const auto fused = train(device, dtype, 20);
  const auto plain = [&] {
    const PlainScope scope;
    return train(device, dtype, 20);
  }();
  for (size_t step = 0; step < plain.size(); ++step)
    EXPECT_NEAR(fused[step] / plain[step], 1.0, tolerance) << step;
  EXPECT_LT(fused.back(), 0.9 * fused.front()) << "it does not even learn";
}

class OpsOn : public OnDevice {};
ON_EVERY_DEVICE(OpsOn);

TEST_P(OpsOn, TrainAsTheirPlainTwinsInFp32) { compare(device, at::kFloat, 1e-5); }
TEST_P(OpsOn, TrainAsTheirPlainTwinsInBf16) { compare(device, at::kBFloat16, 1e-2); }

TEST(Ops, TheSwitchIsOffUnlessAskedFor) {
  EXPECT_FALSE(ops::plain());
  {
    const PlainScope scope;
    EXPECT_TRUE(ops::plain());
  }
  ops::OpsConfig config;
  config.plain = true;
  config.apply();
  EXPECT_TRUE(ops::plain());
  ops::OpsConfig{}.apply();
  EXPECT_FALSE(ops::plain());
}

}  // namespace
}  // namespace tightloop::testing
