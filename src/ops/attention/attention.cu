#include <climits>
#include <cmath>
#include <cstring>

#include "ops/attention/attention_launch.h"
#include "ops/kernel.cuh"
#include "ops/philox.cuh"

namespace tightloop::ops::cuda {

namespace {

// A block has a tile of 64 queries, or in the backward pass of 64 keys, 16 for each of its warps, and walks
// over the tiles of the other side. Scores live in registers only: the weights that a row of them gives go
// straight into the product with the values, which reads its left factor in the layout that the first product
// leaves behind. The backward pass works the weights out again from the scores and the row's lse.
constexpr int kTile = 64, kWarpRows = 16, kThreads = kTile / kWarpRows * 32;

/// A row of a tile in shared memory, with 16 bytes that keep rows apart in its banks.
template <class T, int kHead>
using Row = T[kHead + 8];

template <class T, int kHead>
__device__ inline void fill(Row<T, kHead>* tile, const T* from, int64_t stride, int rows) {
  constexpr int kPacks = kHead / 8;
  for (int i = threadIdx.x; i < kTile * kPacks; i += kThreads) {
    const int row = i / kPacks, column = i % kPacks * 8;
    uint4 pack{0, 0, 0, 0};
    if (row < rows) pack = *reinterpret_cast<const uint4*>(from + row * stride + column);
    *reinterpret_cast<uint4*>(&tile[row][column]) = pack;
  }
}

template <class T>
__device__ inline uint32_t pair_of(float low, float high) {
  const T rounded[2] = {from_float<T>(low), from_float<T>(high)};
  uint32_t pair;
  memcpy(&pair, rounded, sizeof pair);
  return pair;
}

/// Where a lane's elements lie in a fragment (ops/device.cuh), and which row of four matrices it points to,
/// which stand in a square: counted down the rows first, or along the columns first.
struct Lane {
  int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  int in_matrix = threadIdx.x % 8, second = threadIdx.x / 8 % 2 * 8, third = threadIdx.x / 16 % 2 * 8;
  int in_two_rows = second + in_matrix, two_columns = third;
  int in_two_columns = third + in_matrix, two_rows = second;
};

/// Left factor a[m][k] = tile[row + m][column + k].
template <class T, int kHead>
__device__ inline void left(uint32_t (&a)[4], const Row<T, kHead>* tile, int row, int column,
                            const Lane& lane) {
  load_matrices<false>(a, &tile[row + lane.in_two_rows][column + lane.two_columns]);
}
/// Left factor (16, 16) out of two neighbouring results (16, 8).
template <class T>
__device__ inline void left(uint32_t (&a)[4], const float (&c0)[4], const float (&c1)[4]) {
  a[0] = pair_of<T>(c0[0], c0[1]);
  a[1] = pair_of<T>(c0[2], c0[3]);
  a[2] = pair_of<T>(c1[0], c1[1]);
  a[3] = pair_of<T>(c1[2], c1[3]);
}
/// Two right factors beside each other (16, 16), the first in b[0] and b[1]: b[k][n] = tile[row + n][column +
/// k].
template <class T, int kHead>
__device__ inline void rights_turned(uint32_t (&b)[4], const Row<T, kHead>* tile, int row, int column,
                                     const Lane& lane) {
  load_matrices<false>(b, &tile[row + lane.in_two_columns][column + lane.two_rows]);
}
/// The same, b[k][n] = tile[row + k][column + n].
template <class T, int kHead>
__device__ inline void rights(uint32_t (&b)[4], const Row<T, kHead>* tile, int row, int column,
                              const Lane& lane) {
  load_matrices<true>(b, &tile[row + lane.in_two_rows][column + lane.two_columns]);
}

/// c[0] and c[1] (16, 8) += a times two right factors.
template <class T>
__device__ inline void multiply_add_two(float (&c0)[4], float (&c1)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[4]) {
  multiply_add<T>(c0, a, b[0], b[1]);
  multiply_add<T>(c1, a, b[2], b[3]);
}

/// sums (16, kHead) += weights (16, 16) times rows [row, row + 16) of a tile.
template <class T, int kHead>
__device__ inline void accumulate(float (&sums)[kHead / 8][4], const uint32_t (&weights)[4],
                                  const Row<T, kHead>* tile, int row, const Lane& lane) {
#pragma unroll
  for (int n = 0; n < kHead / 8; n += 2) {
    uint32_t b[4];
    rights<T, kHead>(b, tile, row, 8 * n, lane);
    multiply_add_two<T>(sums[n], sums[n + 1], weights, b);
  }
}

/// A warp's 16 rows of results times `scale`, the rows that are there, to memory.
template <class T, int kHead>
__device__ inline void put(const float (&sums)[kHead / 8][4], float upper, float lower, T* to, int64_t stride,
                           int rows, const Lane& lane) {
#pragma unroll
  for (int n = 0; n < kHead / 8; ++n) {
    T* at = to + 8 * n + 2 * lane.t;
    if (lane.g < rows)
      *reinterpret_cast<uint32_t*>(at + lane.g * stride) = pair_of<T>(sums[n][0] * upper, sums[n][1] * upper);
    if (lane.g + 8 < rows)
      *reinterpret_cast<uint32_t*>(at + (lane.g + 8) * stride) =
          pair_of<T>(sums[n][2] * lower, sums[n][3] * lower);
  }
}

template <class T, class Pointer>
__device__ inline T* head_of(const Heads<Pointer>& heads, int b, int h, int64_t head) {
  return const_cast<T*>(static_cast<const T*>(heads.data)) + b * heads.batch + h * head;
}

__device__ inline int keys_of(const AttentionShape& s, int b) {
  return s.lengths ? static_cast<int>(max(int64_t{0}, min(s.lengths[b], s.S))) : static_cast<int>(s.S);
}

/// The keys that any query of the tile from `first` on may see.
__device__ inline int keys_of_tile(const AttentionShape& s, int b, int first) {
  return s.causal ? min(keys_of(s, b), first + kTile) : keys_of(s, b);
}
__device__ inline bool sees(const AttentionShape& s, int query, int key, int keys) {
  return key < keys && (!s.causal || key <= query);
}
/// Where a weight stands in (B, H, T, S).
__device__ inline uint64_t index_of(const AttentionShape& s, int b, int h, int query, int key) {
  return ((static_cast<uint64_t>(b) * s.H + h) * s.T + query) * s.S + key;
}

/// The tiles of keys and values from `first` on, of `keys` that are there.
template <class T, int kHead, class Call>
__device__ inline void fill_keys(Row<T, kHead>* k, Row<T, kHead>* v, const Call& c, int b, int h, int first,
                                 int keys) {
  fill<T, kHead>(k, head_of<const T>(c.k, b, h, kHead) + first * c.k.row, c.k.row, keys - first);
  fill<T, kHead>(v, head_of<const T>(c.v, b, h, kHead) + first * c.v.row, c.v.row, keys - first);
}

/// Which weights of a tile stay, by query and key.
using Kept = uint8_t[kTile];

/// The tile of `rows` queries from `query` on and `columns` keys from `key` on. Four neighbours come from one
/// call of the generator, in whose middle a row may begin.
__device__ inline void fill_kept(Kept* kept, const Dropper& drop, const AttentionShape& s, int b, int h,
                                 int query, int key, int rows, int columns) {
  rows = min(rows, kTile), columns = min(columns, kTile);
  const int calls = (columns + 3) / 4 + 1;
  for (int i = threadIdx.x; i < rows * calls; i += kThreads) {
    const int row = i / calls;
    const uint64_t start = index_of(s, b, h, query + row, key), counter = start / 4 + i % calls;
    const int column = static_cast<int>(static_cast<int64_t>(counter * 4 - start));
    if (column >= columns) continue;
    bool keeps[4];
    drop.four(counter, keeps);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (column + k >= 0 && column + k < columns) kept[row][column + k] = keeps[k];
  }
}

/// Joins the four lanes that share a row.
__device__ inline float quad_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
__device__ inline float quad_sum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

template <class T, int kHead, bool kDrop>
__global__ void __launch_bounds__(kThreads) attention_forward_kernel(const AttentionForward c) {
  auto* q = reinterpret_cast<Row<T, kHead>*>(dynamic_shared());
  auto *k = q + kTile, *v = k + kTile;
  auto* kept = reinterpret_cast<Kept*>(v + kTile);
  const AttentionShape& shape = c.shape;
  const int queries = static_cast<int>(shape.T), first = blockIdx.x * kTile, h = blockIdx.y, b = blockIdx.z;
  const int keys = keys_of_tile(shape, b, first);
  const Lane lane;
  const int mine = first + lane.warp * kWarpRows;  // this warp's first query
  const Dropper drop(shape.drop);

  fill<T, kHead>(q, head_of<const T>(c.q, b, h, kHead) + first * c.q.row, c.q.row, queries - first);
  float y[kHead / 8][4] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  for (int j = 0; j < keys; j += kTile) {
    __syncthreads();  // the tile before has been read
    fill_keys<T, kHead>(k, v, c, b, h, j, keys);
    if (kDrop) fill_kept(kept, drop, shape, b, h, first, j, queries - first, keys - j);
    __syncthreads();
    if (mine >= queries) continue;

    float s[kTile / 8][4] = {};
#pragma unroll
    for (int d = 0; d < kHead; d += 16) {
      uint32_t a[4], b_k[4];
      left<T, kHead>(a, q, lane.warp * kWarpRows, d, lane);
#pragma unroll
      for (int n = 0; n < kTile / 8; n += 2) {
        if (j + 8 * n >= keys) break;
        rights_turned<T, kHead>(b_k, k, 8 * n, d, lane);
        multiply_add_two<T>(s[n], s[n + 1], a, b_k);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = mine + lane.g + 8 * half;
      float largest = most[half];
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          const int key = j + 8 * n + 2 * lane.t + e % 2;
          s[n][e] = sees(shape, query, key, keys) ? s[n][e] * shape.scale : -INFINITY;
          largest = fmaxf(largest, s[n][e]);
        }
      }
      largest = quad_max(largest);
      const float base = largest == -INFINITY ? 0.0f : largest;  // of a row that sees nothing yet
      const float fade = __expf(most[half] - base);
      most[half] = largest;
      sum[half] *= fade;
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) y[n][2 * half] *= fade, y[n][2 * half + 1] *= fade;
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          s[n][e] = __expf(s[n][e] - base);
          sum[half] += s[n][e];
          if (kDrop && j + 8 * n < keys)
            s[n][e] = drop.apply(kept[query - first][8 * n + 2 * lane.t + e % 2], s[n][e]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kTile / 8; n += 2) {
      if (j + 8 * n >= keys) break;
      uint32_t weights[4];
      left<T>(weights, s[n], s[n + 1]);
      accumulate<T, kHead>(y, weights, v, 8 * n, lane);
    }
  }
  if (mine >= queries) return;
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = quad_sum(sum[half]);
    inverse[half] = total > 0 ? 1 / total : 0.0f;
    const int query = mine + lane.g + 8 * half;
    if (lane.t == 0 && query < queries)
      c.lse[(static_cast<int64_t>(b) * shape.H + h) * queries + query] =
          total > 0 ? most[half] + logf(total) : 0.0f;
  }
  const int64_t stride = shape.H * kHead;
  put<T, kHead>(y, inverse[0], inverse[1],
                static_cast<T*>(c.y) + (static_cast<int64_t>(b) * queries + mine) * stride + h * kHead,
                stride, queries - mine, lane);
}

/// What the backward pass needs of a tile of queries.
template <class T, int kHead>
struct Queries {
  Row<T, kHead>*q, *dy;
  float *lse, *delta;  // delta: the row of dy times the row of y
  Kept* kept;          // with one tile of keys

  __device__ void fill(const AttentionBackward& c, int b, int h, int first) const {
    const int rows = static_cast<int>(c.shape.T) - first;
    const int64_t stride = c.shape.H * kHead, start = (b * c.shape.T + first) * stride + h * kHead;
    const T *dy_rows = static_cast<const T*>(c.dy) + start, *y_rows = static_cast<const T*>(c.y) + start;
    cuda::fill<T, kHead>(q, head_of<const T>(c.q, b, h, kHead) + first * c.q.row, c.q.row, rows);
    cuda::fill<T, kHead>(dy, dy_rows, stride, rows);
    const int row = threadIdx.x / 2, half = threadIdx.x % 2;  // two threads a row
    float sum = 0;
    if (row < rows) {
#pragma unroll
      for (int d = half * 8; d < kHead; d += 16) {
        float g[8], out[8];
        load(dy_rows + row * stride + d, g);
        load(y_rows + row * stride + d, out);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += g[i] * out[i];
      }
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (half != 0) return;
    delta[row] = sum;
    lse[row] = row < rows ? c.lse[(static_cast<int64_t>(b) * c.shape.H + h) * c.shape.T + first + row] : 0.0f;
  }
};

/// The products of two pairs of tiles, s = a b^T and dp = da db^T, 16 rows from `row` on and 16 columns.
template <class T, int kHead>
__device__ inline void scores(float (&s)[2][4], float (&dp)[2][4], const Row<T, kHead>* a,
                              const Row<T, kHead>* b, const Row<T, kHead>* da, const Row<T, kHead>* db,
                              int row, int column, const Lane& lane) {
#pragma unroll
  for (int d = 0; d < kHead; d += 16) {
    uint32_t first[4], second[4], turned[4];
    left<T, kHead>(first, a, row, d, lane);
    rights_turned<T, kHead>(turned, b, column, d, lane);
    multiply_add_two<T>(s[0], s[1], first, turned);
    left<T, kHead>(second, da, row, d, lane);
    rights_turned<T, kHead>(turned, db, column, d, lane);
    multiply_add_two<T>(dp[0], dp[1], second, turned);
  }
}

/// The gradient of a tile of queries.
template <class T, int kHead, bool kDrop>
__device__ void query_gradient(const AttentionBackward& c, const Queries<T, kHead>& tile, Row<T, kHead>* k,
                               Row<T, kHead>* v, int first, int h, int b) {
  const AttentionShape& shape = c.shape;
  const int queries = static_cast<int>(shape.T);
  const int keys = keys_of_tile(shape, b, first);
  const Lane lane;
  const int row = lane.warp * kWarpRows, mine = first + row;
  const Dropper drop(shape.drop);
  tile.fill(c, b, h, first);
  float dq[kHead / 8][4] = {};
  for (int j = 0; j < keys; j += kTile) {
    __syncthreads();
    fill_keys<T, kHead>(k, v, c, b, h, j, keys);
    if (kDrop) fill_kept(tile.kept, drop, shape, b, h, first, j, queries - first, keys - j);
    __syncthreads();
    if (mine >= queries) continue;
    for (int chunk = 0; chunk < kTile && j + chunk < keys; chunk += 16) {
      float s[2][4] = {}, ds[2][4] = {};
      scores<T, kHead>(s, ds, tile.q, k, tile.dy, v, row, chunk, lane);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int at = row + lane.g + e / 2 * 8, column = chunk + 8 * n + 2 * lane.t + e % 2;
          const bool seen = sees(shape, first + at, j + column, keys);
          const float weight = seen ? __expf(s[n][e] * shape.scale - tile.lse[at]) : 0.0f;
          if (kDrop) ds[n][e] = drop.apply(tile.kept[at][column], ds[n][e]);
          ds[n][e] = weight * (ds[n][e] - tile.delta[at]);
        }
      }
      uint32_t weights[4];
      left<T>(weights, ds[0], ds[1]);
      accumulate<T, kHead>(dq, weights, k, chunk, lane);
    }
  }
  if (mine >= queries) return;
  put<T, kHead>(dq, shape.scale, shape.scale, head_of<T>(c.dq, b, h, kHead) + mine * c.dq.row, c.dq.row,
                queries - mine, lane);
}

/// The gradients of a tile of keys and their values; those that nobody sees are 0.
template <class T, int kHead, bool kDrop>
__device__ void key_gradient(const AttentionBackward& c, const Queries<T, kHead>& tile, Row<T, kHead>* k,
                             Row<T, kHead>* v, int first, int h, int b) {
  const AttentionShape& shape = c.shape;
  const int queries = static_cast<int>(shape.T), keys = keys_of(shape, b);
  const Lane lane;
  const int row = lane.warp * kWarpRows, mine = first + row;
  const Dropper drop(shape.drop);
  float dk[kHead / 8][4] = {}, dv[kHead / 8][4] = {};
  if (first < keys) {
    fill_keys<T, kHead>(k, v, c, b, h, first, keys);
    for (int i = shape.causal ? first : 0; i < queries; i += kTile) {
      __syncthreads();
      tile.fill(c, b, h, i);
      if (kDrop) fill_kept(tile.kept, drop, shape, b, h, i, first, queries - i, keys - first);
      __syncthreads();
      if (mine >= keys) continue;
      for (int chunk = 0; chunk < kTile && i + chunk < queries; chunk += 16) {
        if (shape.causal && i + chunk + 15 < mine) continue;
        float s[2][4] = {}, ds[2][4] = {}, weights[2][4];
        scores<T, kHead>(s, ds, k, tile.q, v, tile.dy, row, chunk, lane);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int key = mine + lane.g + e / 2 * 8, at = chunk + 8 * n + 2 * lane.t + e % 2,
                      query = i + at;
            const bool seen = query < queries && sees(shape, query, key, keys);
            const float weight = seen ? __expf(s[n][e] * shape.scale - tile.lse[at]) : 0.0f;
            weights[n][e] = weight;
            if (kDrop) {
              const bool kept = tile.kept[at][key - first];
              weights[n][e] = drop.apply(kept, weight);
              ds[n][e] = drop.apply(kept, ds[n][e]);
            }
            ds[n][e] = weight * (ds[n][e] - tile.delta[at]);
          }
        }
        uint32_t a[4];
        left<T>(a, weights[0], weights[1]);
        accumulate<T, kHead>(dv, a, tile.dy, chunk, lane);
        left<T>(a, ds[0], ds[1]);
        accumulate<T, kHead>(dk, a, tile.q, chunk, lane);
      }
    }
  }
  const int rows = static_cast<int>(shape.S) - mine;
  put<T, kHead>(dk, shape.scale, shape.scale, head_of<T>(c.dk, b, h, kHead) + mine * c.dk.row, c.dk.row, rows,
                lane);
  put<T, kHead>(dv, 1, 1, head_of<T>(c.dv, b, h, kHead) + mine * c.dv.row, c.dv.row, rows, lane);
}

template <class T, int kHead, bool kDrop>
__global__ void __launch_bounds__(kThreads)
    attention_backward_kernel(const AttentionBackward c, int query_tiles) {
  auto* q = reinterpret_cast<Row<T, kHead>*>(dynamic_shared());
  auto *dy = q + kTile, *k = dy + kTile, *v = k + kTile;
  auto* numbers = reinterpret_cast<float*>(v + kTile);
  const Queries<T, kHead> tile{q, dy, numbers, numbers + kTile, reinterpret_cast<Kept*>(numbers + 2 * kTile)};
  const int at = blockIdx.x;
  if (at < query_tiles)
    query_gradient<T, kHead, kDrop>(c, tile, k, v, at * kTile, blockIdx.y, blockIdx.z);
  else
    key_gradient<T, kHead, kDrop>(c, tile, k, v, (at - query_tiles) * kTile, blockIdx.y, blockIdx.z);
}

/// run(T{}, integral constant of the head size, of whether something is dropped)
template <class Run>
cudaError_t with_shape(const AttentionShape& s, Run&& run) {
  if (s.T > INT_MAX / 2 || s.S > INT_MAX / 2 || s.H > 65535 || s.B > 65535) return cudaErrorInvalidValue;
  const auto with_drop = [&]<class T, class Head>(T, Head) {
    return s.drop.random ? run(T{}, Head{}, std::true_type{}) : run(T{}, Head{}, std::false_type{});
  };
  const auto with_head = [&]<class T>(T) {
    switch (s.head) {
      case 32:
        return with_drop(T{}, std::integral_constant<int, 32>{});
      case 64:
        return with_drop(T{}, std::integral_constant<int, 64>{});
      case 128:
        return with_drop(T{}, std::integral_constant<int, 128>{});
      default:
        return cudaErrorInvalidValue;
    }
  };
  switch (s.dtype) {
    case Dtype::kBfloat16:
      return with_head(__nv_bfloat16{});
    case Dtype::kFloat16:
      return with_head(__half{});
    default:
      return cudaErrorInvalidValue;
  }
}

template <bool kDrop>
constexpr size_t kept_bytes = kDrop ? kTile * sizeof(Kept) : 0;

int tiles(int64_t rows) { return static_cast<int>((rows + kTile - 1) / kTile); }

dim3 grid_of(const AttentionShape& s, int tiles) {
  return {static_cast<unsigned>(tiles), static_cast<unsigned>(s.H), static_cast<unsigned>(s.B)};
}

}  // namespace

cudaError_t launch(const AttentionForward& c, cudaStream_t stream) {
  const AttentionShape& s = c.shape;
  if (s.B == 0 || s.H == 0 || s.T == 0) return cudaSuccess;
  return with_shape(s, [&]<class T, class Head, class Drops>(T, Head, Drops) {
    return start(attention_forward_kernel<T, Head::value, Drops::value>, grid_of(s, tiles(s.T)), kThreads,
                 3 * kTile * sizeof(Row<T, Head::value>) + kept_bytes<Drops::value>, stream, c);
  });
}

cudaError_t launch(const AttentionBackward& c, cudaStream_t stream) {
  const AttentionShape& s = c.shape;
  if (s.B == 0 || s.H == 0 || s.T + s.S == 0) return cudaSuccess;
  return with_shape(s, [&]<class T, class Head, class Drops>(T, Head, Drops) {
    const size_t shared =
        4 * kTile * sizeof(Row<T, Head::value>) + 2 * kTile * sizeof(float) + kept_bytes<Drops::value>;
    return start(attention_backward_kernel<T, Head::value, Drops::value>, grid_of(s, tiles(s.T) + tiles(s.S)),
                 kThreads, shared, stream, c, tiles(s.T));
  });
}

}  // namespace tightloop::ops::cuda
