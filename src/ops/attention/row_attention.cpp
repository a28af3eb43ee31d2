#include "ops/attention/row_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "core/cpu.h"
#include "ops/cpu_tiles.h"
#include "ops/operator.h"

namespace tightloop::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kBlock = 96;      // queries at once: two blocks of scores are in the second cache
constexpr int64_t kLongest = 1024;  // keys
constexpr int64_t kFewest = 16;     // queries: below, packing costs more than it gives
constexpr int64_t kWidest = 256;    // elements of a head
constexpr int64_t kTile = cpu::kTileRows, kPanel = cpu::kTileColumns;

/// (B, H, T, S) of which each row is dense.
template <class T>
struct Heads {
  T* at;
  int64_t batch, head, step;
  explicit Heads(const Tensor& x)
      : at(const_cast<T*>(x.const_data_ptr<T>())), batch(x.stride(0)), head(x.stride(1)), step(x.stride(2)) {}
  T* row(int64_t b, int64_t h, int64_t t) const { return at + b * batch + h * head + t * step; }
};

struct AttentionShape {
  int64_t B, H, K, T, P, S;
  bool causal;
  float scale;
  AttentionShape(const Tensor& q, const Tensor& k, bool causal, double scale)
      : B(q.size(0)),
        H(q.size(1)),
        K(k.size(1)),
        T(q.size(2)),
        P(k.size(2)),
        S(q.size(3)),
        causal(causal),
        scale(static_cast<float>(scale)) {}
  /// How many keys a query sees.
  int64_t seen(int64_t query) const { return causal ? std::min(P, query + 1) : P; }
};

template <class T>
void read_head(const Heads<T>& heads, int64_t b, int64_t h, int64_t rows, int64_t S, float scale, float* to) {
  for (int64_t t = 0; t < rows; ++t, to += S) {
    const T* from = heads.row(b, h, t);
    for (int64_t s = 0; s < S; s += cpu::kLanes) cpu::store(to + s, cpu::load(from + s) * scale);
  }
}

template <class T>
void write_rows(const float* from, int64_t rows, int64_t S, float scale, const Heads<T>& heads, int64_t b,
                int64_t h, int64_t first) {
  for (int64_t t = 0; t < rows; ++t, from += S) {
    T* to = heads.row(b, h, first + t);
    for (int64_t s = 0; s < S; s += cpu::kLanes) cpu::store(to + s, cpu::load(from + s) * scale);
  }
}

/// A block of queries, whose rows of scores are `step` apart.
struct Block {
  const AttentionShape& shape;
  int64_t first, rows, step;

  /// How far tiles of rows from p on reach: to the last key that one of their queries sees.
  int64_t reach(int64_t p) const { return shape.seen(first + std::min(p + kTile, rows) - 1); }

  /// to = x (rows x S) times columns^T, for keys that are seen; columns are panels of P columns.
  void scores(const float* x, const float* columns, float* to) const {
    for (int64_t p = 0; p < rows; p += kTile)
      for (int64_t key = 0; key < reach(p); key += kPanel)
        cpu::multiply_tile(std::min(kTile, rows - p), {x + p * shape.S, shape.S, 1}, columns + key * shape.S,
                           shape.S, to + p * step + key, step, /*add=*/false);
  }
  /// to (rows x S) = weights times the panels of keys.
  void mix(const float* weights, const float* panels, float* to) const {
    for (int64_t s = 0; s < shape.S; s += kPanel)
      for (int64_t p = 0; p < rows; p += kTile)
        cpu::multiply_tile(std::min(kTile, rows - p), {weights + p * step, step, 1}, panels + s * shape.P,
                           reach(p), to + p * shape.S + s, shape.S, /*add=*/false);
  }
  /// to (P x S) += weights^T times panels of queries (rows x 16 each).
  void spread(const float* weights, const float* panels, float* to) const {
    const int64_t keys = reach(rows - 1);
    for (int64_t s = 0; s < shape.S; s += kPanel)
      for (int64_t key = 0; key < keys; key += kTile) {
        const int64_t from = shape.causal ? std::max<int64_t>(0, key - first) : 0;  // no query before sees it
        cpu::multiply_tile(std::min(kTile, keys - key), {weights + from * step + key, 1, step},
                           panels + s * rows + from * kPanel, rows - from, to + key * shape.S + s, shape.S,
                           /*add=*/true);
      }
  }
};

/// e^(scores - shift) in place for the first `seen` of a row, zeros up to `reach`; gives their sum.
float exponentials(float* row, int64_t seen, int64_t reach, float shift) {
  cpu::Vec total{};
  cpu::for_vectors(seen, [&](int64_t i, auto lanes) {
    const cpu::Vec e = cpu::exp(cpu::load(row + i, lanes, -std::numeric_limits<float>::infinity()) - shift);
    cpu::store(row + i, e, lanes);
    total += e;
  });
  std::fill(row + seen, row + std::max(seen, reach), 0.0f);
  return cpu::sum(total);
}

float largest(const float* row, int64_t n) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  cpu::Vec most = cpu::broadcast(kNothing);
  cpu::for_vectors(
      n, [&](int64_t i, auto lanes) { most = cpu::larger(cpu::load(row + i, lanes, kNothing), most); });
  return cpu::largest(most);
}

template <class T>
void forward_heads(const AttentionShape& shape, const Heads<T>& q, const Heads<T>& k, const Heads<T>& v,
                   const Heads<T>& y, float* log_sums) {
  const auto [B, H, K, N, P, S, causal, scale] = shape;
  const int64_t step = cpu::whole_tiles(P);
  at::parallel_for(0, B * K, 1, [&](int64_t begin, int64_t end) {
    cpu::Floats keys(step * S), values(P * S), dense(std::max(N, P) * S), scores(kBlock * step),
        made(kBlock * S);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t b = task / K, kv = task % K;
      read_head(k, b, kv, P, S, 1, dense.data());
      cpu::panels_of_columns(dense.data(), P, S, keys.data());
      read_head(v, b, kv, P, S, 1, dense.data());
      cpu::panels_of_rows(dense.data(), P, S, values.data());
      for (int64_t h = kv * (H / K); h < (kv + 1) * (H / K); ++h) {
        read_head(q, b, h, N, S, scale, dense.data());
        for (int64_t first = 0; first < N; first += kBlock) {
          const Block block{shape, first, std::min(kBlock, N - first), step};
          block.scores(dense.data() + first * S, keys.data(), scores.data());
          float* const log_sum = log_sums + (b * H + h) * N + first;
          float inverse[kBlock];
          for (int64_t r = 0; r < block.rows; ++r) {
            float* const row = scores.data() + r * step;
            const int64_t seen = shape.seen(first + r);
            const float most = largest(row, seen);
            const float sum = exponentials(row, seen, block.reach(r / kTile * kTile), most);
            inverse[r] = 1 / sum;
            log_sum[r] = most + std::log(sum);
          }
          block.mix(scores.data(), values.data(), made.data());
          for (int64_t r = 0; r < block.rows; ++r)
            write_rows(made.data() + r * S, 1, S, inverse[r], y, b, h, first + r);
        }
      }
    }
  });
}

template <class T>
void backward_heads(const AttentionShape& shape, const Heads<T>& q, const Heads<T>& k, const Heads<T>& v,
                    const Heads<T>& y, const Heads<T>& dy, const float* log_sums, const Heads<T>& dq,
                    const Heads<T>& dk, const Heads<T>& dv) {
  const auto [B, H, K, N, P, S, causal, scale] = shape;
  const int64_t step = cpu::whole_tiles(P), longer = std::max(N, P);
  at::parallel_for(0, B * K, 1, [&](int64_t begin, int64_t end) {
    cpu::Floats key_columns(step * S), key_rows(P * S), value_columns(step * S), dense(longer * S),
        flow(N * S), weights(kBlock * step), slopes(kBlock * step), made(kBlock * S), panels(kBlock * S),
        of_keys(P * S), of_values(P * S);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t b = task / K, kv = task % K;
      read_head(k, b, kv, P, S, 1, dense.data());
      cpu::panels_of_columns(dense.data(), P, S, key_columns.data());
      cpu::panels_of_rows(dense.data(), P, S, key_rows.data());
      read_head(v, b, kv, P, S, 1, dense.data());
      cpu::panels_of_columns(dense.data(), P, S, value_columns.data());
      of_keys.clear(), of_values.clear();
      for (int64_t h = kv * (H / K); h < (kv + 1) * (H / K); ++h) {
        read_head(q, b, h, N, S, scale, dense.data());
        read_head(dy, b, h, N, S, 1, flow.data());
        for (int64_t first = 0; first < N; first += kBlock) {
          const Block block{shape, first, std::min(kBlock, N - first), step};
          const float *queries = dense.data() + first * S, *flows = flow.data() + first * S;
          block.scores(queries, key_columns.data(), weights.data());
          block.scores(flows, value_columns.data(), slopes.data());
          for (int64_t r = 0; r < block.rows; ++r) {
            float *const weight = weights.data() + r * step, *const slope = slopes.data() + r * step;
            const int64_t reach = block.reach(r / kTile * kTile);
            exponentials(weight, shape.seen(first + r), reach, log_sums[(b * H + h) * N + first + r]);
            const T* const result = y.row(b, h, first + r);
            cpu::Vec dot{};
            for (int64_t s = 0; s < S; s += cpu::kLanes)
              dot += cpu::load(result + s) * cpu::load(flows + r * S + s);
            const float mean = cpu::sum(dot);
            cpu::for_vectors(reach, [&](int64_t i, auto lanes) {
              cpu::store(slope + i, cpu::load(weight + i, lanes) * (cpu::load(slope + i, lanes) - mean),
                         lanes);
            });
          }
          block.mix(slopes.data(), key_rows.data(), made.data());
          write_rows(made.data(), block.rows, S, scale, dq, b, h, first);
          cpu::panels_of_rows(queries, block.rows, S, panels.data());
          block.spread(slopes.data(), panels.data(), of_keys.data());
          cpu::panels_of_rows(flows, block.rows, S, panels.data());
          block.spread(weights.data(), panels.data(), of_values.data());
        }
      }
      write_rows(of_keys.data(), P, S, 1, dk, b, kv, 0);
      write_rows(of_values.data(), P, S, 1, dv, b, kv, 0);
    }
  });
}

struct HeadParts {
  Tensor q, k, v;  // (B, H, T, S)
};

/// Of one tensor (B, T, H + 2 K, S).
HeadParts head_parts(const Tensor& qkv, int64_t H) {
  const int64_t K = (qkv.size(2) - H) / 2;
  const auto part = [&](int64_t first, int64_t heads) { return qkv.narrow(2, first, heads).transpose(1, 2); };
  return {part(0, H), part(H, K), part(H + K, K)};
}

/// Either q, k and v, or one tensor that holds them, as `q`, and the number of q's heads.
HeadParts head_parts(const Tensor& q, const Tensor& k, const Tensor& v, int64_t heads) {
  return heads > 0 ? head_parts(q, heads) : HeadParts{q, k, v};
}

Tensor dense_rows(const Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

// q, k, v, y and their gradients (B, H, T, S), of which each row is dense.
TORCH_LIBRARY_FRAGMENT(tightloop, m) {
  m.def(
      "row_attention_forward(Tensor q, Tensor k, Tensor v, bool causal, float scale)"
      " -> (Tensor y, Tensor log_sums)");
  m.def(
      "row_attention_backward(Tensor dy, Tensor q, Tensor k, Tensor v, Tensor y, Tensor log_sums,"
      " Tensor(a!) dq, Tensor(b!) dk, Tensor(c!) dv, bool causal, float scale) -> ()");
}

std::tuple<Tensor, Tensor> row_attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                                 bool causal, double scale) {
  const AttentionShape shape(q, k, causal, scale);
  Tensor y = at::empty({shape.B, shape.T, shape.H, shape.S}, q.options()).transpose(1, 2);
  Tensor log_sums = at::empty({shape.B, shape.H, shape.T}, q.options().dtype(at::kFloat));
  cpu::with_dtype(q.scalar_type(), [&]<class T>(T) {
    forward_heads<T>(shape, Heads<T>(q), Heads<T>(k), Heads<T>(v), Heads<T>(y),
                     log_sums.mutable_data_ptr<float>());
  });
  return {y, log_sums};
}

void row_attention_backward(const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
                            const Tensor& y, const Tensor& log_sums, const Tensor& dq, const Tensor& dk,
                            const Tensor& dv, bool causal, double scale) {
  cpu::with_dtype(q.scalar_type(), [&]<class T>(T) {
    backward_heads<T>(AttentionShape(q, k, causal, scale), Heads<T>(q), Heads<T>(k), Heads<T>(v), Heads<T>(y),
                      Heads<T>(dy), log_sums.const_data_ptr<float>(), Heads<T>(dq), Heads<T>(dk),
                      Heads<T>(dv));
  });
}

TORCH_LIBRARY_IMPL(tightloop, CPU, m) {
  m.impl("row_attention_forward", row_attention_forward);
  m.impl("row_attention_backward", row_attention_backward);
}

struct RowAttention : torch::autograd::Function<RowAttention> {
  static Tensor forward(AutogradContext* context, const Tensor& q, const std::optional<Tensor>& k,
                        const std::optional<Tensor>& v, int64_t heads, bool causal, double scale) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel =
        find_operator<decltype(row_attention_forward)>("tightloop::row_attention_forward");
    const auto in = head_parts(q, or_undefined(k), or_undefined(v), heads);
    auto [y, log_sums] = kernel.call(in.q, in.k, in.v, causal, scale);
    context->save_for_backward({q, or_undefined(k), or_undefined(v), y, log_sums});
    context->saved_data["heads"] = heads;
    context->saved_data["causal"] = causal;
    context->saved_data["scale"] = scale;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& d) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto kernel =
        find_operator<decltype(row_attention_backward)>("tightloop::row_attention_backward");
    const auto saved = context->get_saved_variables();
    const int64_t heads = context->saved_data["heads"].toInt();
    const auto in = head_parts(saved[0], saved[1], saved[2], heads);
    Tensor dq = at::empty_like(saved[0]), dk, dv;
    if (heads == 0) dk = at::empty_like(in.k), dv = at::empty_like(in.v);
    const auto out = head_parts(dq, dk, dv, heads);
    kernel.call(dense_rows(d[0]), in.q, in.k, in.v, saved[3], saved[4], out.q, out.k, out.v,
                context->saved_data["causal"].toBool(), context->saved_data["scale"].toDouble());
    return {dq, dk, dv, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

bool row_attention_takes(const AttentionCall& call) {
  // torch's kernels use AVX-512 where there is one, these do not.
  static const bool suits = cpu_has("avx2") && cpu_has("fma") && !cpu_has("avx512f");
  const Tensor &q = call.q_BHTS, &k = call.k_BKPS, &v = call.v_BKPS;
  if (!suits || !q.is_cpu() || !has_kernel(q) || call.drop.rate > 0 || call.bias_BHTP.defined() ||
      call.documents_BT.defined() || call.window > 0 || q.numel() == 0 || k.numel() == 0)
    return false;
  const int64_t T = q.size(2), P = k.size(2), S = q.size(3);
  for (const Tensor* x : {&q, &k, &v})
    if (x->scalar_type() != q.scalar_type() || x->size(0) != q.size(0) || x->size(3) != S ||
        x->stride(3) != 1)
      return false;
  if (v.size(1) != k.size(1) || v.size(2) != P) return false;
  return (!call.causal || T == P) && T >= kFewest && P <= kLongest && S % kPanel == 0 && S <= kWidest &&
         q.size(1) % k.size(1) == 0;
}

Tensor row_attention(const AttentionCall& call) {
  const Tensor &q = call.q_BHTS, &whole = call.qkv_BTJS;
  const double scale = call.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
  if (whole.defined() && whole.is_contiguous())
    return RowAttention::apply(whole, std::nullopt, std::nullopt, q.size(1), call.causal, scale);
  return RowAttention::apply(q, std::optional(call.k_BKPS), std::optional(call.v_BKPS), 0, call.causal,
                             scale);
}

}  // namespace tightloop::ops
