#include "ops/attention/paged_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <random>

#include "ops/compare.h"

namespace tightloop::testing {
namespace {

using at::Tensor;

/// Some sequences with so many tokens in the pages, of which each has some more read in one pass.
struct Paged {
  std::vector<int64_t> held{0}, read{1};
  int64_t H = 4, K = 2, S = 32, page = 16, window = 0;
  at::ScalarType dtype = at::kFloat;
  std::optional<double> scale{};
  int64_t padding = 0;  // tokens that are none
};

std::ostream& operator<<(std::ostream& out, const Paged& c) {
  out << "heads " << c.H << " of " << c.K << " x " << c.S << ", pages of " << c.page << ", window "
      << c.window << ' ' << c.dtype << ", sequences";
  for (size_t i = 0; i < c.held.size(); ++i) out << ' ' << c.held[i] << '+' << c.read[i];
  return out;
}

Tensor ints(const std::vector<int32_t>& values) { return at::tensor(values, at::kInt); }

/// A call whose pages are scattered over a cache full of NaN, as memory that nobody wrote may be.
ops::PagedCall call_of(const Paged& c, at::Device device) {
  std::vector<int32_t> positions, rows;
  int64_t most = 1, pages = 1;
  for (size_t i = 0; i < c.held.size(); ++i) {
    for (int64_t t = 0; t < c.read[i]; ++t)
      positions.push_back(static_cast<int32_t>(c.held[i] + t)), rows.push_back(static_cast<int32_t>(i));
    const int64_t own = (c.held[i] + c.read[i] + c.page - 1) / c.page;
    most = std::max(most, own), pages += own;
  }
  for (int64_t i = 0; i < c.padding; ++i)
    positions.push_back(-1), rows.push_back(static_cast<int32_t>(c.held.size()));
  std::vector<int32_t> order(static_cast<size_t>(pages));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, std::mt19937(7));
  std::vector<int32_t> tables;
  size_t next = 0;
  const auto N = static_cast<int64_t>(positions.size());
  ops::PagedCall call;
  call.key_pages = at::full({pages, c.K, c.page, c.S}, NAN, c.dtype);
  call.value_pages = call.key_pages.clone();
  for (size_t i = 0; i <= c.held.size(); ++i) {
    const int64_t tokens = i < c.held.size() ? c.held[i] + c.read[i] : 0;
    for (int64_t number = 0; number < most; ++number) {
      const bool own = number * c.page < tokens;
      tables.push_back(own ? order[next] : 0);
      for (int64_t t = 0; own && t < c.page && number * c.page + t < c.held[i]; ++t)
        for (Tensor* to : {&call.key_pages, &call.value_pages})
          (*to)[order[next]].select(1, t).copy_(random_tensor(
              {c.K, c.S}, at::kFloat, 1000 * next + 2 * static_cast<uint64_t>(t) + (to == &call.key_pages)));
      next += own;
    }
  }
  // Values as attention gets them: parts of one tensor.
  const Tensor qkv = random_tensor({N, c.H + 2 * c.K, c.S}, c.dtype, 5).to(device);
  call.q_NHS = qkv.narrow(1, 0, c.H).contiguous(), call.k_NKS = qkv.narrow(1, c.H, c.K).contiguous();
  call.v_NKS = qkv.narrow(1, c.H + c.K, c.K);
  call.positions_N = ints(positions).to(device), call.rows_N = ints(rows).to(device);
  call.tables = ints(tables).view({-1, most}).to(device);
  call.key_pages = call.key_pages.to(device), call.value_pages = call.value_pages.to(device);
  call.window = c.window, call.scale = c.scale;
  call.counters = at::zeros({N * c.H}, call.tables.options());
  call.apart = std::ranges::all_of(c.read, [](int64_t tokens) { return tokens <= 1; });
  return call;
}

class PagedAttentionOn : public OnDevice {
 protected:
  void compare(const Paged& c) {
    SCOPED_TRACE(::testing::Message() << c << ' ' << device);
    const c10::NoGradGuard no_grad;
    auto call = call_of(c, device), wide = call;
    for (Tensor* x : {&wide.q_NHS, &wide.k_NKS, &wide.v_NKS, &wide.key_pages, &wide.value_pages,
                      &wide.positions_N, &wide.rows_N, &wide.tables})
      *x = x->is_floating_point() ? x->cpu().to(at::kDouble) : x->cpu();
    const Tensor wanted = ops::paged_attention_plain(wide);
    const Tensor got = ops::paged_attention(call);
    ASSERT_FALSE(got.isnan().any().item<bool>());
    EXPECT_LE(relative_error(got.cpu(), wanted), tolerance(c.dtype));
    const auto written = [](const Tensor& pages) { return pages.cpu().to(at::kDouble).nan_to_num(77); };
    EXPECT_TRUE(at::equal(written(call.key_pages), written(wide.key_pages)));
    EXPECT_TRUE(at::equal(written(call.value_pages), written(wide.value_pages)));
    EXPECT_EQ(call.counters.sum().item<int64_t>(), 0);
    if (c.padding == 0) return;
    EXPECT_TRUE(at::equal(got.narrow(0, got.size(0) - c.padding, c.padding).cpu(),
                          at::zeros({c.padding, c.H, c.S}, c.dtype)));
  }
  std::vector<at::ScalarType> dtypes() const {
    if (device.is_cuda() || kFibers) return {at::kFloat, at::kBFloat16, at::kHalf};
    return {at::kFloat, at::kBFloat16};
  }
};
ON_EVERY_DEVICE(PagedAttentionOn);

TEST_P(PagedAttentionOn, AgreesWithThePlainTwin) {
  for (const auto dtype : dtypes())
    for (const int64_t S : {32, 64, 96, 128, 256})
      compare({.held = {0, 3, 40, 130}, .read = {1, 1, 1, 1}, .S = S, .dtype = dtype});
}

TEST_P(PagedAttentionOn, TakesAnyNumberOfHeads) {
  for (const auto& [H, K] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {3, 3}, {4, 2}, {6, 2}, {8, 1}, {14, 2}, {16, 1}, {20, 1}})
    compare({.held = {21, 0}, .read = {1, 1}, .H = H, .K = K, .S = 64, .dtype = at::kBFloat16});
}

TEST_P(PagedAttentionOn, LengthsAroundThePagesAndWhatIsReadAtOnce) {
  std::vector<int64_t> held, read;
  for (const int64_t at : {0, 1, 14, 15, 16, 17, 31, 32, 62, 63, 64, 65, 126, 127, 128, 129, 255, 256, 300})
    held.push_back(at), read.push_back(1);
  compare({.held = held, .read = read});
  compare({.held = held, .read = read, .page = 32, .dtype = at::kBFloat16});
  compare({.held = {2500}, .read = {1}, .H = 2, .K = 1});
}

TEST_P(PagedAttentionOn, Windows) {
  for (const int64_t window : {1, 2, 15, 16, 17, 64, 200, 1000})
    compare({.held = {0, 1, 16, 100, 300}, .read = {1, 1, 1, 1, 1}, .window = window});
  for (const int64_t window : {1, 20, 150}) compare({.held = {0, 130}, .read = {40, 30}, .window = window});
}

TEST_P(PagedAttentionOn, PromptsBesideAnswers) {
  compare({.held = {0, 7, 20, 0}, .read = {23, 1, 37, 1}});
  compare({.held = {0, 0}, .read = {150, 16}, .H = 2, .K = 2, .S = 64, .dtype = at::kBFloat16});
  compare({.held = {16, 100}, .read = {16, 33}, .H = 9, .K = 1});
  compare({.held = {3}, .read = {5}, .scale = 0.3, .padding = 3});
}

TEST_P(PagedAttentionOn, TokensThatAreNone) {
  compare({.held = {5, 40}, .read = {1, 1}, .padding = 6});
  compare({.held = {}, .read = {}, .padding = 2});
}

TEST_P(PagedAttentionOn, SizesWithoutAKernelAreServedToo) {
  compare({.held = {3, 20}, .read = {1, 4}, .S = 6});
  compare({.held = {3, 20}, .read = {1, 4}, .S = 264});
}

// So many rows that a block has several stretches of the longest one's keys.
TEST_P(PagedAttentionOn, ManyRows) {
  std::vector<int64_t> held(140), read(140, 1);
  for (size_t i = 0; i < held.size(); ++i) held[i] = static_cast<int64_t>(i % 7);
  held[77] = 900;
  compare({.held = held, .read = read, .H = 4, .K = 4, .S = 32, .dtype = at::kBFloat16});
}

// The bits of a row are its own: beside others, alone, and in any order.
TEST_P(PagedAttentionOn, ARowDoesNotDependOnTheOthers) {
  const c10::NoGradGuard no_grad;
  for (const auto dtype : dtypes()) {
    const auto call =
        call_of({.held = {200, 3, 700, 64}, .read = {1, 1, 1, 1}, .S = 64, .dtype = dtype}, device);
    const Tensor all = ops::paged_attention(call);
    for (int64_t n = 0; n < 4; ++n) {
      auto one = call;
      for (Tensor* x : {&one.q_NHS, &one.k_NKS, &one.v_NKS, &one.positions_N, &one.rows_N})
        *x = x->narrow(0, n, 1);
      EXPECT_TRUE(at::equal(ops::paged_attention(one)[0], all[n])) << n << ' ' << dtype;
    }
  }
}

TEST(PagedAttention, RefusesWhatDoesNotBelongTogether) {
  const c10::NoGradGuard no_grad;
  const auto good = call_of({}, at::kCPU);
  const auto refused = [&](auto&& change) {
    auto call = good;
    change(call);
    EXPECT_THROW(ops::paged_attention(call), c10::Error);
  };
  EXPECT_NO_THROW(ops::paged_attention(good));
  refused([](auto& c) { c.q_NHS = c.q_NHS.narrow(1, 0, 3); });
  refused([](auto& c) { c.positions_N = c.positions_N.to(at::kLong); });
  refused([](auto& c) { c.rows_N = at::cat({c.rows_N, c.rows_N}); });
  refused([](auto& c) { c.key_pages = c.key_pages.to(at::kBFloat16); });
  refused([](auto& c) { c.value_pages = c.value_pages.transpose(1, 2); });
  refused([](auto& c) { c.tables = c.tables.flatten(); });
  refused([](auto& c) { c.window = -1; });
}

}  // namespace
}  // namespace tightloop::testing
