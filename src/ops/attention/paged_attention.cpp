#include "ops/attention/paged_attention.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/cpu_tiles.h"
#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def(
      "paged_attention(Tensor q, Tensor k, Tensor v, Tensor(a!) key_pages, Tensor(b!) value_pages,"
      " Tensor positions, Tensor rows, Tensor tables, Tensor(c!)? counters, int window, float scale, bool "
      "apart) -> Tensor");
}

using PagedAttention = Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                              const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&,
                              int64_t, double, bool);

// Keys that are scored at once. They start at multiples of it, so that what a token gets does not depend on
// which tokens are computed beside it.
constexpr int64_t kKeysAtOnce = 128;
constexpr size_t kQueriesAtOnce = 6;  // share each read of a key

/// Where the tokens of a pass stand.
struct Places {
  const int32_t *positions, *rows, *tables;
  int64_t pages_of_row, page;

  Places(const Tensor& positions, const Tensor& rows, const Tensor& tables, int64_t page)
      : positions(positions.const_data_ptr<int32_t>()),
        rows(rows.const_data_ptr<int32_t>()),
        tables(tables.const_data_ptr<int32_t>()),
        pages_of_row(tables.size(1)),
        page(page) {}
  /// Page number times page size plus offset.
  int64_t slot(int64_t row, int64_t position) const {
    return int64_t{tables[row * pages_of_row + position / page]} * page + position % page;
  }
};

/// Pages of one tensor.
template <class T>
struct Pages {
  T* at;
  int64_t heads, page, size;

  explicit Pages(const Tensor& x)
      : at(x.mutable_data_ptr<T>()), heads(x.size(1)), page(x.size(2)), size(x.size(3)) {}
  T* token(int64_t slot, int64_t head) const {
    return at + ((slot / page * heads + head) * page + slot % page) * size;
  }
};

template <class T>
void write_tokens(const Tensor& x, const Places& places, const Pages<T>& pages) {
  const T* from = x.const_data_ptr<T>();
  const int64_t step = x.stride(0), head_step = x.stride(1), S = pages.size;
  at::parallel_for(0, x.size(0), cpu::grain(pages.heads * S), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (places.positions[n] < 0) continue;
      const int64_t slot = places.slot(places.rows[n], places.positions[n]);
      for (int64_t head = 0; head < pages.heads; ++head)
        std::memcpy(static_cast<void*>(pages.token(slot, head)), from + n * step + head * head_step,
                    sizeof(T) * S);
    }
  });
}

float sum_of_halves(cpu::Vec v) {
  v += __builtin_shuffle(v, cpu::Bits{4, 5, 6, 7, 0, 1, 2, 3});
  v += __builtin_shuffle(v, cpu::Bits{2, 3, 0, 1, 6, 7, 4, 5});
  return v[0] + v[1];
}

/// to[r][i] = queries (kRows, S) times the keys.
template <size_t kRows, class T>
void score_keys(const T* const* keys, int64_t count, const float* queries, int64_t S, float* to) {
  constexpr auto kAll = std::make_index_sequence<kRows>{};
  for (int64_t i = 0; i < count; ++i) {
    cpu::Vec sums[kRows] = {};
    for (int64_t s = 0; s < S; s += cpu::kLanes) {
      const cpu::Vec key = cpu::load(keys[i] + s);
      cpu::unrolled(
          kAll, [&](auto r) __attribute__((always_inline)) {
            sums[r] += key * cpu::load(queries + static_cast<int64_t>(r) * S + s);
          });
    }
    cpu::unrolled(
        kAll, [&](auto r) __attribute__((always_inline)) {
          to[static_cast<int64_t>(r) * kKeysAtOnce + i] = sum_of_halves(sums[r]);
        });
  }
}

/// to (kRows, S) += weights times the values.
template <size_t kRows, class T>
void mix_values(const T* const* values, int64_t count, const float* weights, int64_t S, float* to) {
  constexpr auto kAll = std::make_index_sequence<kRows>{};
  for (int64_t s = 0; s < S; s += cpu::kLanes) {
    cpu::Vec sums[kRows];
    cpu::unrolled(
        kAll, [&](auto r) __attribute__((always_inline)) {
          sums[r] = cpu::load(to + static_cast<int64_t>(r) * S + s);
        });
    for (int64_t i = 0; i < count; ++i) {
      const cpu::Vec value = cpu::load(values[i] + s);
      cpu::unrolled(
          kAll, [&](auto r) __attribute__((always_inline)) {
            sums[r] += value * weights[static_cast<int64_t>(r) * kKeysAtOnce + i];
          });
    }
    cpu::unrolled(
        kAll, [&](auto r) __attribute__((always_inline)) {
          cpu::store(to + static_cast<int64_t>(r) * S + s, sums[r]);
        });
  }
}

template <class Body>
void with_rows(int64_t rows, Body&& body) {
  switch (rows) {
    case 1:
      return body(std::integral_constant<size_t, 1>{});
    case 2:
      return body(std::integral_constant<size_t, 2>{});
    case 3:
      return body(std::integral_constant<size_t, 3>{});
    case 4:
      return body(std::integral_constant<size_t, 4>{});
    case 5:
      return body(std::integral_constant<size_t, 5>{});
    default:
      return body(std::integral_constant<size_t, kQueriesAtOnce>{});
  }
}

/// Queries of one key's head that are computed together: of tokens [token, token + tokens) of one sequence,
/// which stand one after another, heads [head, head + heads).
struct PagedTile {
  int64_t token, tokens, head, heads, key_head;
};

std::vector<PagedTile> paged_tiles(const Places& places, int64_t N, int64_t H, int64_t K) {
  std::vector<PagedTile> tiles;
  const auto most = static_cast<int64_t>(kQueriesAtOnce);
  const int64_t group = H / K, tokens = std::max<int64_t>(1, most / group), heads = std::min(group, most);
  for (int64_t n = 0; n < N;) {
    int64_t end = n + 1;
    while (end < N && end - n < tokens && places.rows[end] == places.rows[n] && places.positions[n] >= 0 &&
           places.positions[end] == places.positions[end - 1] + 1)
      ++end;
    for (int64_t k = 0; k < K; ++k)
      for (int64_t h = 0; h < group; h += heads)
        tiles.push_back({n, end - n, k * group + h, std::min(heads, group - h), k});
    n = end;
  }
  return tiles;
}

/// The softmax of a tile's queries, taken up key by key.
struct TileState {
  int64_t rows, S;
  cpu::Floats queries, out, weights;
  float most[kQueriesAtOnce], total[kQueriesAtOnce] = {};

  TileState(int64_t rows, int64_t S)
      : rows(rows),
        S(S),
        queries(rows * S),
        out(rows * S),
        weights(static_cast<int64_t>(kQueriesAtOnce) * kKeysAtOnce) {
    out.clear();
    std::ranges::fill(most, -std::numeric_limits<float>::infinity());
  }
  /// A row's scores of `count` keys become weights; of these it sees [begin, end).
  void weigh(int64_t r, int64_t count, int64_t begin, int64_t end) {
    float* row = weights.data() + r * kKeysAtOnce;
    if (begin >= end) return std::fill(row, row + count, 0.0f);
    std::fill(row, row + begin, 0.0f), std::fill(row + end, row + count, 0.0f);
    const float before = most[r];
    for (int64_t i = begin; i < end; ++i) most[r] = std::max(most[r], row[i]);
    const cpu::Vec shift = cpu::broadcast(most[r]);
    cpu::Vec sums{};
    cpu::for_vectors(end - begin, [&](int64_t i, auto lanes) {
      const cpu::Vec weight =
          cpu::exp(cpu::load(row + begin + i, lanes, -std::numeric_limits<float>::infinity()) - shift);
      cpu::store(row + begin + i, weight, lanes);
      sums += weight;
    });
    const float kept = std::exp(before - most[r]);
    total[r] = total[r] * kept + sum_of_halves(sums);
    if (kept == 1) return;
    float* to = out.data() + r * S;
    for (int64_t s = 0; s < S; s += cpu::kLanes) cpu::store(to + s, cpu::load(to + s) * kept);
  }
};

template <class T>
void attend_tile(const PagedTile& tile, const Tensor& q, const Places& places, const Pages<T>& keys,
                 const Pages<T>& values, int64_t window, float scale, T* out) {
  const int64_t S = keys.size, H = q.size(1), rows = tile.tokens * tile.heads;
  const int64_t row = places.rows[tile.token], first = places.positions[tile.token];
  const auto at = [&](int64_t r) { return (tile.token + r / tile.heads) * H + tile.head + r % tile.heads; };
  if (first < 0) {
    for (int64_t r = 0; r < rows; ++r) std::fill_n(out + at(r) * S, S, T(0));
    return;
  }
  TileState state(rows, S);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t s = 0; s < S; s += cpu::kLanes)
      cpu::store(state.queries.data() + r * S + s, cpu::load(q.const_data_ptr<T>() + at(r) * S + s) * scale);
  const auto begin_of = [&](int64_t position) {
    return window > 0 ? std::max<int64_t>(0, position - window) : 0;
  };
  const T *key[kKeysAtOnce], *value[kKeysAtOnce];
  const int64_t end = first + tile.tokens;
  for (int64_t from = begin_of(first) / kKeysAtOnce * kKeysAtOnce; from < end; from += kKeysAtOnce) {
    const int64_t count = std::min(kKeysAtOnce, end - from);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t slot = places.slot(row, from + i);
      key[i] = keys.token(slot, tile.key_head), value[i] = values.token(slot, tile.key_head);
    }
    with_rows(rows, [&](auto each) {
      score_keys<each>(key, count, state.queries.data(), S, state.weights.data());
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t position = first + r / tile.heads;
        state.weigh(r, count, std::max<int64_t>(0, begin_of(position) - from),
                    std::min(count, position + 1 - from));
      }
      mix_values<each>(value, count, state.weights.data(), S, state.out.data());
    });
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t s = 0; s < S; s += cpu::kLanes)
      cpu::store(out + at(r) * S + s, cpu::load(state.out.data() + r * S + s) * (1 / state.total[r]));
}

Tensor paged_attention_cpu(const Tensor& q_in, const Tensor& k, const Tensor& v, const Tensor& key_pages,
                           const Tensor& value_pages, const Tensor& positions, const Tensor& rows,
                           const Tensor& tables, const std::optional<Tensor>&, int64_t window, double scale,
                           bool) {
  const Tensor q = q_in.contiguous();
  Tensor out = at::empty(q.sizes(), q.options());
  const Places places(positions, rows, tables, key_pages.size(2));
  const auto tiles = paged_tiles(places, q.size(0), q.size(1), k.size(1));
  cpu::with_dtype(q.scalar_type(), [&]<class T>(T) {
    const Pages<T> keys(key_pages), values(value_pages);
    write_tokens<T>(k, places, keys);
    write_tokens<T>(v, places, values);
    at::parallel_for(0, static_cast<int64_t>(tiles.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        attend_tile<T>(tiles[static_cast<size_t>(i)], q, places, keys, values, window,
                       static_cast<float>(scale), out.mutable_data_ptr<T>());
    });
  });
  return out;
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) { m.impl("paged_attention", paged_attention_cpu); }

void check_paged(const PagedCall& c) {
  TORCH_CHECK(
      c.q_NHS.dim() == 3 && c.k_NKS.dim() == 3 && c.q_NHS.size(0) == c.k_NKS.size(0) &&
          c.k_NKS.sizes() == c.v_NKS.sizes() && c.q_NHS.size(2) == c.k_NKS.size(2) && c.k_NKS.size(1) > 0 &&
          c.q_NHS.size(1) % c.k_NKS.size(1) == 0,
      "paged_attention: queries must be (tokens, heads, size), keys and values (tokens, heads that divide "
      "theirs, size)");
  TORCH_CHECK(c.key_pages.dim() == 4 && c.key_pages.sizes() == c.value_pages.sizes() &&
                  c.key_pages.size(1) == c.k_NKS.size(1) && c.key_pages.size(3) == c.k_NKS.size(2) &&
                  c.key_pages.is_contiguous() && c.value_pages.is_contiguous(),
              "paged_attention: pages must be dense (pages, heads of keys, tokens, size)");
  for (const Tensor* x : {&c.k_NKS, &c.v_NKS, &c.key_pages, &c.value_pages})
    TORCH_CHECK(x->scalar_type() == c.q_NHS.scalar_type() && x->device() == c.q_NHS.device(),
                "paged_attention: queries, keys, values and pages must have one dtype and device");
  for (const Tensor* x : {&c.positions_N, &c.rows_N, &c.tables})
    TORCH_CHECK(
        x->scalar_type() == at::kInt && x->is_contiguous() && x->device() == c.q_NHS.device() &&
            x->dim() == (x == &c.tables ? 2 : 1) && (x == &c.tables || x->size(0) == c.q_NHS.size(0)),
        "paged_attention: positions and rows must be int32, one for each token, tables int32 (rows, pages)");
  TORCH_CHECK(c.window >= 0, "paged_attention: the window is below 0");
  TORCH_CHECK(!c10::GradMode::is_enabled() || !(c.q_NHS.requires_grad() || c.k_NKS.requires_grad()),
              "paged_attention has no gradient");
}

double scale_of(const PagedCall& call) {
  return call.scale.value_or(1 / std::sqrt(static_cast<double>(call.q_NHS.size(2))));
}

const auto& paged_kernel() {
  static const auto kernel = find_operator<PagedAttention>("tightloop::paged_attention");
  return kernel;
}

/// Heads of whole 16 bytes and of at most 256 elements.
bool paged_fits(const PagedCall& call) {
  const int64_t S = call.q_NHS.size(2);
  return has_kernel(call.q_NHS) && registered(paged_kernel(), call.q_NHS) && S % cpu::kLanes == 0 &&
         S <= 256 && std::has_single_bit(static_cast<uint64_t>(call.key_pages.size(2)));
}

Tensor rows_dense(const Tensor& x) { return x.stride(2) == 1 ? x : x.contiguous(); }

}  // namespace

Tensor paged_attention(const PagedCall& call) {
  check_paged(call);
  if (!paged_fits(call)) return paged_attention_plain(call);
  const at::AutoDispatchBelowADInplaceOrView below;
  return paged_kernel().call(call.q_NHS, rows_dense(call.k_NKS), rows_dense(call.v_NKS), call.key_pages,
                             call.value_pages, call.positions_N, call.rows_N, call.tables,
                             given(call.counters), call.window, scale_of(call), call.apart);
}

Tensor paged_attention_plain(const PagedCall& call) {
  check_paged(call);
  const auto wide = compute_dtype(call.q_NHS);
  const int64_t page = call.key_pages.size(2), group = call.q_NHS.size(1) / call.k_NKS.size(1);
  // (pages, tokens, K, S)
  const Tensor keys = call.key_pages.transpose(1, 2), values = call.value_pages.transpose(1, 2);
  const Tensor positions = call.positions_N.cpu().to(at::kLong), rows = call.rows_N.cpu().to(at::kLong),
               tables = call.tables.cpu().to(at::kLong);
  const auto position = [&](int64_t n) { return positions.const_data_ptr<int64_t>()[n]; };
  const auto table = [&](int64_t n) { return tables[rows.const_data_ptr<int64_t>()[n]]; };
  for (int64_t n = 0; n < call.q_NHS.size(0); ++n) {
    if (position(n) < 0) continue;
    const int64_t at = table(n)[position(n) / page].item<int64_t>(), offset = position(n) % page;
    keys[at][offset].copy_(call.k_NKS[n]);
    values[at][offset].copy_(call.v_NKS[n]);
  }
  Tensor out = at::zeros_like(call.q_NHS, at::MemoryFormat::Contiguous);
  for (int64_t n = 0; n < call.q_NHS.size(0); ++n) {
    const int64_t p = position(n);
    if (p < 0) continue;
    const int64_t first = call.window > 0 ? std::max<int64_t>(0, p - call.window) : 0;
    const Tensor pages = table(n).narrow(0, 0, p / page + 1).to(keys.device());
    const auto seen = [&](const Tensor& x) {  // (H, keys, S)
      const Tensor all = x.index_select(0, pages).flatten(0, 1).narrow(0, first, p + 1 - first);
      return all.transpose(0, 1).to(wide).repeat_interleave(group, 0);
    };
    const Tensor q = call.q_NHS[n].unsqueeze(1).to(wide) * scale_of(call);  // (H, 1, S)
    const Tensor weights = at::softmax(at::matmul(q, seen(keys).transpose(1, 2)), -1);
    out[n].copy_(at::matmul(weights, seen(values)).squeeze(1));
  }
  return out;
}

}  // namespace tightloop::ops
