#include "ops/attention/attention_backend.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/random.h"
#include "ops/attention/attention_counter.h"

namespace tightloop {
namespace {

using at::Tensor;

/// What a query may see, pair by pair.
Tensor slow_mask(const ops::AttentionCall& call) {
  const int64_t B = call.q_BHTS.size(0), T = call.q_BHTS.size(2), P = call.k_BKPS.size(2), past = P - T;
  auto mask = at::zeros({B, 1, T, P}, at::kBool);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t t = 0; t < T; ++t)
      for (int64_t p = 0; p < P; ++p) {
        bool seen = !call.causal || p <= t + past;
        if (call.window > 0) seen = seen && t + past - p <= call.window;
        if (call.documents_BT.defined())
          seen = seen && call.documents_BT[b][t].item<int64_t>() == call.documents_BT[b][p].item<int64_t>();
        mask[b][0][t][p].fill_(seen);
      }
  return mask;
}

Tensor slow_attention(const ops::AttentionCall& call) {
  const int64_t repeat = call.q_BHTS.size(1) / call.k_BKPS.size(1);
  const auto k = call.k_BKPS.repeat_interleave(repeat, 1), v = call.v_BKPS.repeat_interleave(repeat, 1);
  auto scores = at::matmul(call.q_BHTS, k.transpose(2, 3)) *
                call.scale.value_or(1 / std::sqrt(static_cast<double>(call.q_BHTS.size(3))));
  if (call.bias_BHTP.defined()) scores = scores + call.bias_BHTP;
  scores = scores.masked_fill(slow_mask(call).logical_not(), -INFINITY);
  return at::matmul(at::softmax(scores, -1), v);
}

/// Calls so far, by what they hide and who computed them.
std::map<std::pair<std::string, std::string>, int64_t> counts() {
  std::map<std::pair<std::string, std::string>, int64_t> all;
  for (const auto& use : ops::attention_used()) all[{use.kind, use.backend}] += use.count;
  return all;
}

/// Kind and backend of the calls since then, which are one.
std::pair<std::string, std::string> who_ran(std::map<std::pair<std::string, std::string>, int64_t> before) {
  std::pair<std::string, std::string> found{"nothing", "nobody"};
  for (const auto& [which, count] : counts()) {
    EXPECT_TRUE(count == before[which] || (count == before[which] + 1 && found.first == "nothing"));
    if (count != before[which]) found = which;
  }
  return found;
}

TEST(Attend, EveryBackendEqualsASlowReference) {
  Random random(3);
  std::map<std::string, int> ran;
  for (int i = 0; i < 80; ++i) {
    const int64_t B = 1 + random.below(2), K = 1 + random.below(2), H = K * (1 + random.below(2));
    const int64_t T = 1 + random.below(6), past = i % 3 ? 0 : random.below(4), S = 4;
    const auto doubles = at::TensorOptions(at::kDouble);
    const auto leaf = [&](at::IntArrayRef sizes) {
      return at::randn(sizes, doubles).set_requires_grad(true);
    };
    ops::AttentionCall call{.q_BHTS = leaf({B, H, T, S}),
                            .k_BKPS = leaf({B, K, past + T, S}),
                            .v_BKPS = leaf({B, K, past + T, S})};
    call.causal = random.below(4) > 0;
    if (call.causal && random.below(3) == 0) call.window = 1 + random.below(3);
    if (past == 0 && random.below(3) == 0)
      call.documents_BT = (at::arange(T).unsqueeze(0) >= static_cast<int64_t>(random.below(T + 1)))
                              .to(at::kLong)
                              .expand({B, T});
    if (random.below(3) == 0) call.bias_BHTP = at::randn({1, H, T, past + T}, doubles);
    if (random.below(2)) call.scale = 0.3;
    // A share so small that nothing is dropped: the backend that can drop is asked.
    if (random.below(3) == 0) call.drop = {1e-12, at::full({}, 7, at::kLong), 1};
    call.mask = [&] { return slow_mask(call); };

    const auto before = counts();
    const auto y = ops::attend(call);
    const auto [kind, backend] = who_ran(before);
    EXPECT_EQ(kind, call.documents_BT.defined() ? "documents"
                    : call.window > 0           ? "window"
                    : call.causal               ? "causal"
                                                : "full");
    ++ran[backend];
    const auto weight = at::randn(y.sizes(), doubles);
    (y * weight).sum().backward();
    const std::vector<Tensor> gradients{call.q_BHTS.grad().clone(), call.k_BKPS.grad().clone(),
                                        call.v_BKPS.grad().clone()};
    for (const auto* x : {&call.q_BHTS, &call.k_BKPS, &call.v_BKPS}) x->mutable_grad().zero_();
    const auto expected = slow_attention(call);
    (expected * weight).sum().backward();
    EXPECT_TRUE(at::allclose(y, expected, 1e-9, 1e-9)) << i;
    const std::vector<Tensor> wanted{call.q_BHTS.grad(), call.k_BKPS.grad(), call.v_BKPS.grad()};
    for (size_t n = 0; n < 3; ++n)
      EXPECT_TRUE(at::allclose(gradients[n], wanted[n], 1e-8, 1e-8)) << i << ' ' << n;
  }
  for (const char* name : {"torch", "torch with a mask", "step by step"}) EXPECT_GT(ran[name], 5) << name;
}

TEST(Attend, SaysWhichKernelTorchTook) {
  const auto x = at::randn({1, 2, 8, 16});
  ops::attend({.q_BHTS = x, .k_BKPS = x, .v_BKPS = x});
  bool said = false;
  for (const auto& use : ops::attention_used()) {
    if (use.backend == "torch" && use.kind == "causal") {
      said = true;
      EXPECT_TRUE(use.kernel == "flash" || use.kernel == "math") << use.kernel;
      EXPECT_NE(ops::attention_text().find("causal by torch (" + use.kernel + ")"), std::string::npos)
          << ops::attention_text();
    }
  }
  EXPECT_TRUE(said);
}

// Counting takes no lock, and none of the calls is lost.
TEST(Attend, CountsFromManyThreads) {
  const auto x = at::zeros({1, 1, 2, 4});
  constexpr int kThreads = 4, kCalls = 200;
  const auto before = counts()[{"full", "torch"}];
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < kCalls; ++n) ops::attend({.q_BHTS = x, .k_BKPS = x, .v_BKPS = x, .causal = false});
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ((counts()[{"full", "torch"}]), before + kThreads * kCalls);
}

TEST(Attend, OneThatIsAddedIsAskedFirst) {
  ops::add_attention_backend({"for heads of 3",
                              [](const ops::AttentionCall& call) { return call.q_BHTS.size(3) == 3; },
                              [](const ops::AttentionCall& call) { return call.v_BKPS + 1; }});
  const auto x = at::zeros({1, 1, 2, 3}), y = at::zeros({1, 1, 2, 4});
  EXPECT_EQ(ops::attend({.q_BHTS = x, .k_BKPS = x, .v_BKPS = x}).sum().item<double>(), 6);
  EXPECT_EQ((counts()[{"causal", "for heads of 3"}]), 1);
  EXPECT_EQ(ops::attend({.q_BHTS = y, .k_BKPS = y, .v_BKPS = y}).sum().item<double>(), 0);
}

}  // namespace
}  // namespace tightloop
