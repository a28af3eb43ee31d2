#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/attention/attention_backend.h"
#include "ops/attention/attention_counter.h"
#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

struct Case {
  int64_t B, T, H, K, S;
  int64_t window = 0;
  std::vector<int64_t> lengths{};  // of documents, which fill B * T; empty: rows are whole
  int64_t empty = 0;               // further documents without positions
  bool causal = true;
  std::optional<double> scale{};
  bool packed = false;  // q, k and v are parts of one tensor
};

Tensor bounds_of(const Case& one) {
  std::vector<int64_t> bounds{0};
  for (const int64_t length : one.lengths) bounds.push_back(bounds.back() + length);
  bounds.resize(bounds.size() + one.empty, bounds.back());
  return at::tensor(bounds, at::kInt);
}

Tensor documents_of(const Case& one) {
  std::vector<int64_t> documents;
  for (size_t i = 0; i < one.lengths.size(); ++i)
    documents.insert(documents.end(), one.lengths[i], static_cast<int64_t>(i));
  return at::tensor(documents, at::kInt).view({one.B, one.T});
}

/// (B or 1, 1, T, T): what a query sees.
Tensor mask_of(const Case& one) {
  const auto at = at::arange(one.T);
  auto mask = one.causal ? at.unsqueeze(0) <= at.unsqueeze(1) : at::full({one.T, one.T}, true, at::kBool);
  if (one.window > 0) mask = mask & (at.unsqueeze(1) - at.unsqueeze(0) <= one.window);
  mask = mask.view({1, 1, one.T, one.T});
  if (one.lengths.empty()) return mask;
  const auto documents = documents_of(one);
  return mask & (documents.unsqueeze(2) == documents.unsqueeze(1)).unsqueeze(1);
}

ops::AttentionCall call_of(const Case& one, const std::vector<Tensor>& in) {
  ops::AttentionCall call;
  if (one.packed) {
    const auto parts = in[0].split_with_sizes({one.H, one.K, one.K}, 2);
    call.q_BHTS = parts[0], call.k_BKPS = parts[1], call.v_BKPS = parts[2], call.qkv_BTJS = in[0];
  } else {
    call.q_BHTS = in[0], call.k_BKPS = in[1], call.v_BKPS = in[2];
  }
  for (Tensor* x : {&call.q_BHTS, &call.k_BKPS, &call.v_BKPS}) *x = x->transpose(1, 2);
  call.causal = one.causal, call.window = one.window, call.scale = one.scale;
  if (!one.lengths.empty()) {
    call.documents_BT = documents_of(one).to(in[0].device());
    call.bounds = std::make_shared<ops::DocumentBounds>(bounds_of(one).to(in[0].device()));
  }
  call.mask = [=, device = in[0].device()] { return mask_of(one).to(device); };
  return call;
}

/// The same step by step; `kept` (B, H, T, T): what dropout leaves, already divided by its rate.
Tensor slowly(const Case& one, const ops::AttentionCall& call, const Tensor& kept = {}) {
  const auto repeated = [&](const Tensor& x) { return x.repeat_interleave(one.H / one.K, 1); };
  const auto scores = at::matmul(call.q_BHTS, repeated(call.k_BKPS).transpose(2, 3)) *
                      one.scale.value_or(1 / std::sqrt(static_cast<double>(one.S)));
  auto weights =
      at::softmax(scores.masked_fill(mask_of(one).to(scores.device()).logical_not(), -INFINITY), -1);
  if (kept.defined()) weights = weights * kept.to(weights.device(), weights.scalar_type());
  return at::matmul(weights, repeated(call.v_BKPS));
}

std::vector<Tensor> inputs_of(const Case& one, at::ScalarType dtype) {
  if (one.packed) return {random_tensor({one.B, one.T, one.H + 2 * one.K, one.S}, dtype, 1)};
  return {random_tensor({one.B, one.T, one.H, one.S}, dtype, 1),
          random_tensor({one.B, one.T, one.K, one.S}, dtype, 2),
          random_tensor({one.B, one.T, one.K, one.S}, dtype, 3)};
}

int64_t by_cudnn() {
  int64_t calls = 0;
  for (const auto& use : ops::attention_used())
    if (use.backend == "cuDNN") calls += use.count;
  return calls;
}

class CudnnAttentionOn : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (device.is_cpu()) GTEST_SKIP() << "cuDNN computes on GPUs alone";
  }
  std::vector<Tensor> on_device(std::vector<Tensor> all) const {
    for (Tensor& x : all) x = x.to(device);
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(Each, CudnnAttentionOn, ::testing::Values("cuda"),
                         [](const auto& info) { return std::string(info.param); });

std::vector<Case> cases() {
  return {
      {.B = 2, .T = 64, .H = 2, .K = 2, .S = 64},
      {.B = 3, .T = 77, .H = 4, .K = 2, .S = 64},  // an odd length, grouped queries
      {.B = 8, .T = 2, .H = 4, .K = 4, .S = 32},
      {.B = 2, .T = 130, .H = 3, .K = 1, .S = 96},
      {.B = 2, .T = 96, .H = 2, .K = 2, .S = 128, .causal = false},
      {.B = 2, .T = 200, .H = 2, .K = 1, .S = 128, .scale = 0.3},
      {.B = 1, .T = 150, .H = 2, .K = 2, .S = 256},
      {.B = 2, .T = 160, .H = 2, .K = 2, .S = 40},
      {.B = 2, .T = 100, .H = 2, .K = 2, .S = 64, .window = 1},
      {.B = 2, .T = 300, .H = 2, .K = 1, .S = 128, .window = 70},
      {.B = 2, .T = 100, .H = 2, .K = 2, .S = 64, .window = 99},
      {.B = 2, .T = 100, .H = 2, .K = 2, .S = 64, .window = 500},
      {.B = 2, .T = 96, .H = 3, .K = 3, .S = 64, .packed = true},
      {.B = 2, .T = 96, .H = 4, .K = 2, .S = 96, .packed = true},
      {.B = 2, .T = 100, .H = 2, .K = 2, .S = 64, .lengths = {60, 40, 1, 99}},
      {.B = 2, .T = 100, .H = 4, .K = 2, .S = 96, .lengths = {1, 1, 98, 33, 67}, .empty = 3},
      {.B = 1, .T = 128, .H = 2, .K = 2, .S = 64, .lengths = {128}, .empty = 7},
      {.B = 2, .T = 128, .H = 2, .K = 1, .S = 128, .window = 20, .lengths = {100, 28, 50, 78}, .empty = 1},
      {.B = 2, .T = 100, .H = 3, .K = 3, .S = 64, .lengths = {60, 40, 1, 99}, .empty = 4, .packed = true},
  };
}

std::string text_of(const Case& one) {
  std::string text = fmt::format("B {} T {} H {} K {} S {} window {} causal {} packed {} documents", one.B,
                                 one.T, one.H, one.K, one.S, one.window, one.causal, one.packed);
  for (const int64_t length : one.lengths) text += fmt::format(" {}", length);
  return text;
}

TEST_P(CudnnAttentionOn, AgreesWithSingleSteps) {
  for (const auto dtype : {at::kBFloat16, at::kHalf})
    for (const Case& one : cases()) {
      SCOPED_TRACE(text_of(one) + (dtype == at::kHalf ? " fp16" : " bf16"));
      const int64_t before = by_cudnn();
      // Weights and the scores' gradients are rounded before they meet the next product.
      expect_agreement([&](const auto& in) { return ops::attend(call_of(one, in)); },
                       [&](const auto& in) { return slowly(one, call_of(one, in)); },
                       on_device(inputs_of(one, dtype)), 2 * tolerance(dtype));
      EXPECT_GT(by_cudnn(), before) << "somebody else computed it: " << ops::attention_text();
    }
}

TEST_P(CudnnAttentionOn, IsTheSameTwiceInDeterministicMode) {
  const bool before = at::globalContext().deterministicAlgorithms();
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  for (const Case& one :
       {Case{.B = 4, .T = 512, .H = 4, .K = 4, .S = 64, .packed = true},
        Case{.B = 4, .T = 512, .H = 4, .K = 2, .S = 128, .window = 100},
        Case{.B = 2, .T = 512, .H = 4, .K = 2, .S = 96, .lengths = {500, 12, 300, 212}, .empty = 4}}) {
    SCOPED_TRACE(text_of(one));
    const int64_t calls = by_cudnn();
    std::vector<Tensor> first;
    for (int round = 0; round < 3; ++round) {
      auto in = on_device(inputs_of(one, at::kBFloat16));
      for (Tensor& x : in) x.set_requires_grad(true);
      const auto y = ops::attend(call_of(one, in));
      (y * random_tensor(y.sizes(), at::kFloat, 9).to(device)).sum().backward();
      std::vector<Tensor> made{y.detach()};
      for (const Tensor& x : in) made.push_back(x.grad());
      if (round == 0) first = made;
      for (size_t i = 0; i < made.size(); ++i) EXPECT_TRUE(at::equal(made[i], first[i])) << i;
    }
    EXPECT_EQ(by_cudnn(), calls + 3) << ops::attention_text();
  }
  at::globalContext().setDeterministicAlgorithms(before, false);
}

// With the unit matrix as values, what comes out are the weights: they show what was dropped, and values and
// gradients must be those of single steps that drop the same.
TEST_P(CudnnAttentionOn, DropsWhatItSays) {
  constexpr double kRate = 0.25;
  const Case one{.B = 4, .T = 64, .H = 4, .K = 4, .S = 64};
  const auto drop = [&](int64_t random, int64_t site) {
    return ops::Dropout{kRate, at::full({}, random, at::TensorOptions(at::kLong).device(device)), site};
  };
  const auto in = on_device(inputs_of(one, at::kBFloat16));
  const auto weights = [&](const ops::Dropout& dropped) {
    auto call = call_of(one, in);
    call.v_BKPS = at::eye(64, in[0].options())
                      .expand({one.B, one.K, 64, 64})
                      .transpose(1, 2)
                      .contiguous()
                      .transpose(1, 2);
    call.drop = dropped;
    return ops::attend(call).to(at::kFloat).cpu();
  };
  const int64_t before = by_cudnn();
  const auto seen = mask_of(one).expand({one.B, one.H, one.T, one.T});
  const auto kept = weights(drop(7, 3)) > 0;
  ASSERT_GT(by_cudnn(), before) << ops::attention_text();
  const double share = kept.masked_select(seen).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(share, 1 - kRate, 0.01);  // of 33,280: three deviations are 0.007
  EXPECT_TRUE(at::equal(kept, weights(drop(7, 3)) > 0)) << "the same numbers drop the same";
  for (const auto& other : {drop(8, 3), drop(7, 4)}) {
    const double same =
        ((weights(other) > 0) == kept).masked_select(seen).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(same, (1 - kRate) * (1 - kRate) + kRate * kRate, 0.02)
        << "another number, or site, drops others";
  }
  expect_agreement(
      [&](const auto& x) {
        auto call = call_of(one, x);
        call.drop = drop(7, 3);
        return ops::attend(call);
      },
      [&](const auto& x) { return slowly(one, call_of(one, x), kept / (1 - kRate)); }, in,
      2 * tolerance(at::kBFloat16));
}

}  // namespace
}  // namespace tightloop::testing
