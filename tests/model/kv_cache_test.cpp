#include "model/parts/kv_cache.h"

#include "ops/attention/attention_backend.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace tightloop {
namespace {

/// Keys (B, H, 1, D) that tell row, head and time apart; values are their negatives.
at::Tensor keys_at(int64_t rows, int64_t time) {
  return at::arange(rows * 2 * 3, at::kFloat).view({rows, 2, 1, 3}) + 1000.0 * static_cast<double>(time);
}

TEST(KvCache, RowsThatAreChosenGoOnFromTheirOwnPast) {
  constexpr int64_t kTokens = 70;  // several times the block that it grows by
  KvCache cache(1);
  const auto chosen = at::tensor(std::vector<int64_t>{2, 0, 2, 1});
  for (int64_t t = 0; t < kTokens; ++t) {
    if (t == 33) cache.select_rows(chosen);
    const int64_t rows = t < 33 ? 3 : 4;
    const auto [keys, values] = cache.append(0, keys_at(rows, t), -keys_at(rows, t));
    cache.advance(1);
    ASSERT_EQ(keys.size(2), t + 1);
    for (int64_t past = 0; past <= t; ++past) {
      const auto written = keys_at(past < 33 ? 3 : 4, past);
      const auto wanted = past < 33 && t >= 33 ? written.index_select(0, chosen) : written;
      ASSERT_TRUE(at::equal(keys.narrow(2, past, 1), wanted)) << past << " of " << t;
      ASSERT_TRUE(at::equal(values.narrow(2, past, 1), -wanted)) << past << " of " << t;
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
