#include "model/parts/kv_cache.h"

#include "ops/attention/attention_backend.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

namespace tightloop {
namespace {

/// Keys (B, H, 1, D) that tell row, head and time apart; values are their negatives.
at::Tensor keys_at(int64_t rows, int64_t time) {
  return at::arange(rows * 2 * 3, at::kFloat).view({rows, 2, 1, 3}) + 1000.0 * static_cast<double>(time);
}

TEST(KvCache, KeepsWhatItHeldWhereItGrows) {
  constexpr int64_t kTokens = 70;  // several times the block that it grows by
  KvCache cache(1);
  for (int64_t t = 0; t < kTokens; ++t) {
    const auto [keys, values] = cache.append(0, keys_at(3, t), -keys_at(3, t));
    cache.advance(1);
    ASSERT_EQ(keys.size(2), t + 1);
    for (int64_t past = 0; past <= t; ++past) {
      ASSERT_TRUE(at::equal(keys.narrow(2, past, 1), keys_at(3, past))) << past << " of " << t;
      ASSERT_TRUE(at::equal(values.narrow(2, past, 1), -keys_at(3, past))) << past << " of " << t;
    }
  }
}

TEST(WithoutPlans, PutsBackWhatWasThere) {
  auto& context = at::globalContext();
  const bool before = context.userEnabledCuDNNSDP();
  for (const bool on : {true, false}) {
    context.setSDPUseCuDNN(on);
    {
      const ops::WithoutPlans growing;
      EXPECT_FALSE(context.userEnabledCuDNNSDP());
    }
    EXPECT_EQ(context.userEnabledCuDNNSDP(), on);
  }
  context.setSDPUseCuDNN(before);
}

}  // namespace
}  // namespace tightloop
