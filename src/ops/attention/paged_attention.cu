#include "ops/attention/paged_attention_launch.h"

#include <algorithm>
#include <climits>

#include "ops/kernel.cuh"

namespace tightloop::ops::cuda {

namespace {

// A block has the queries of one token that share a head of keys, kGroup of them at most, and a stretch of
// the keys. kLanes threads hold a key together; each such team takes every so many-th key and keeps a
// softmax of its own, and teams are joined at the end: no barrier stands in the loop. Into how many stretches
// a token's keys are cut follows from its length alone, so that its bits do not depend on what is computed
// beside it.
constexpr int kPagedThreads = 128, kPagedWarps = kPagedThreads / 32;
constexpr int kMostSplits = 32, kLeastKeys = 64;  // of a stretch
constexpr int64_t kEnoughBlocks = 2048;           // for all multiprocessors
constexpr float kBelowAll = -1e30f;               // scores; not infinite, so that differences are numbers

template <class T>
__device__ inline float exponential(float x) {
  if constexpr (std::is_same_v<T, float>)
    return expf(x);
  else
    return __expf(x);
}

/// Where a token's keys are.
struct PagedRow {
  const int32_t* table;
  int shift, mask, kv_heads, kv_head, size;

  __device__ PagedRow(const PagedAttention& c, int n, int kv_head)
      : table(c.tables + c.rows[n] * c.pages_of_row),
        shift(c.page_shift),
        mask(static_cast<int>(c.page) - 1),
        kv_heads(static_cast<int>(c.kv_heads)),
        kv_head(kv_head),
        size(static_cast<int>(c.size)) {}
  /// The first element of a position, in either tensor of pages.
  __device__ int64_t at(int position) const {
    const int64_t page = table[position >> shift];
    return (((page * kv_heads + kv_head) << shift) + (position & mask)) * size;
  }
};

/// Copies one head of one token, 16 bytes a thread.
template <class T>
__device__ inline void copy_head(const void* from, int64_t at, void* to, int64_t place, int size, int thread,
                                 int threads) {
  for (int i = thread * kWide<T>; i < size; i += threads * kWide<T>)
    *reinterpret_cast<uint4*>(static_cast<T*>(to) + place + i) =
        load_raw(static_cast<const T*>(from) + at + i);
}

template <class T>
__global__ void write_pages_kernel(const PagedAttention c) {
  const int n = static_cast<int>(blockIdx.x), kv_head = static_cast<int>(blockIdx.y);
  const int position = c.positions[n];
  if (position < 0) return;
  const PagedRow row(c, n, kv_head);
  const int64_t place = row.at(position);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  copy_head<T>(c.k, n * c.k_step + kv_head * c.k_head_step, c.key_pages, place, row.size, thread, threads);
  copy_head<T>(c.v, n * c.v_step + kv_head * c.v_head_step, c.value_pages, place, row.size, thread, threads);
}

/// A team's softmax over the keys that it has seen, a thread's part of it.
template <class T, int kLanes, int kPacks, int kGroup>
struct PagedTeam {
  static constexpr int kVec = kWide<T>, kElements = kPacks * kVec;
  float q[kGroup][kElements] = {}, sum[kGroup][kElements] = {};
  float most[kGroup], total[kGroup] = {};
  int lane;

  __device__ PagedTeam() : lane(static_cast<int>(threadIdx.x) % kLanes) {
#pragma unroll
    for (int h = 0; h < kGroup; ++h) most[h] = kBelowAll;
  }
  /// body(pack, its first element in the head)
  template <class Body>
  __device__ void for_packs(int size, Body&& body) const {
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) {
      const int i = (pack * kLanes + lane) * kVec;
      if (i < size) body(pack, i);
    }
  }
  __device__ void read_queries(const T* from, int heads, int size, float scale) {
    for_packs(size, [&](int pack, int i) {
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
        if (h >= heads) continue;
        float values[kVec];
        load(from + h * size + i, values);
#pragma unroll
        for (int k = 0; k < kVec; ++k) q[h][pack * kVec + k] = values[k] * scale;
      }
    });
  }
  __device__ void score(const uint4 (&key)[kPacks], bool seen, float (&scores)[kGroup]) const {
#pragma unroll
    for (int h = 0; h < kGroup; ++h) scores[h] = 0;
#pragma unroll
    for (int pack = 0; pack < kPacks; ++pack) {
      float values[kVec];
      unpack<T>(key[pack], values);
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
#pragma unroll
        for (int k = 0; k < kVec; ++k) scores[h] += q[h][pack * kVec + k] * values[k];
      }
    }
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
#pragma unroll
      for (int distance = kLanes / 2; distance > 0; distance /= 2)
        scores[h] += __shfl_xor_sync(0xffffffffu, scores[h], distance);
      if (!seen) scores[h] = -INFINITY;
    }
  }
  /// Another softmax of the same queries joins this one.
  __device__ void join(int h, float their_most, float their_total, const float (&theirs)[kElements]) {
    const float larger = fmaxf(most[h], their_most);
    const float own = exponential<T>(most[h] - larger), other = exponential<T>(their_most - larger);
    most[h] = larger;
    total[h] = total[h] * own + their_total * other;
#pragma unroll
    for (int i = 0; i < kElements; ++i) sum[h][i] = sum[h][i] * own + theirs[i] * other;
  }
};

template <class T, int kLanes, int kPacks, int kGroup>
__global__ void __launch_bounds__(kPagedThreads) paged_attention_kernel(const PagedAttention c) {
  using Team = PagedTeam<T, kLanes, kPacks, kGroup>;
  constexpr int kVec = Team::kVec, kElements = Team::kElements, kSize = kLanes * kElements;
  constexpr int kTeams = kPagedThreads / kLanes, kAtOnce = kGroup > 4 ? 2 : 4;
  const int size = static_cast<int>(c.size), group = static_cast<int>(c.heads / c.kv_heads);
  const int parts = (group + kGroup - 1) / kGroup;  // blocks that share a head of keys
  const int n = static_cast<int>(blockIdx.z), kv_head = static_cast<int>(blockIdx.y) / parts;
  const int part = static_cast<int>(blockIdx.y) % parts * kGroup, heads = min(kGroup, group - part);
  const int64_t first_head = static_cast<int64_t>(n) * c.heads + kv_head * group + part;
  T* const out = static_cast<T*>(c.out) + first_head * size;
  const int position = c.positions[n], thread = static_cast<int>(threadIdx.x);
  if (position < 0) {
    if (blockIdx.x == 0)
      for (int i = thread; i < heads * size; i += kPagedThreads) out[i] = from_float<T>(0);
    return;
  }
  const int start = c.window > 0 && c.window < position ? position - static_cast<int>(c.window) : 0;
  const int length = position + 1 - start;
  const int splits = min(static_cast<int>(c.splits), (length + kLeastKeys - 1) / kLeastKeys);
  const int span = (length + splits - 1) / splits;
  const PagedRow row(c, n, kv_head);
  for (int split = static_cast<int>(blockIdx.x); split < splits; split += static_cast<int>(gridDim.x)) {
    const int begin = start + split * span, end = min(position + 1, begin + span);
    if (c.apart && split == splits - 1) {  // the token's own key stands in this block's stretch
      const int64_t place = row.at(position);
      copy_head<T>(c.k, n * c.k_step + kv_head * c.k_head_step, c.key_pages, place, size, thread,
                   kPagedThreads);
      copy_head<T>(c.v, n * c.v_step + kv_head * c.v_head_step, c.value_pages, place, size, thread,
                   kPagedThreads);
      __syncthreads();
    }

    Team team;
    team.read_queries(static_cast<const T*>(c.q) + first_head * size, heads, size, c.scale);
    const T *keys = static_cast<const T*>(c.key_pages), *values = static_cast<const T*>(c.value_pages);
    int64_t place[kAtOnce];
    const auto find = [&](int base) {
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int key = base + u * kTeams + thread / kLanes;
        place[u] = key < end ? row.at(key) : -1;
      }
    };
    find(begin);
    for (int base = begin; base < end; base += kAtOnce * kTeams) {
      uint4 key[kAtOnce][kPacks] = {}, value[kAtOnce][kPacks] = {};
      bool seen[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        seen[u] = place[u] >= 0;
        if (seen[u])
          team.for_packs(size, [&](int pack, int i) { key[u][pack] = load_raw(keys + place[u] + i); });
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
        if (seen[u])
          team.for_packs(size, [&](int pack, int i) { value[u][pack] = load_raw(values + place[u] + i); });
      find(base + kAtOnce * kTeams);  // the next ones' pages are asked for while these are on their way
      float scores[kAtOnce][kGroup];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) team.score(key[u], seen[u], scores[u]);
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
        float most = team.most[h];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) most = fmaxf(most, scores[u][h]);
        const float kept = exponential<T>(team.most[h] - most);
        team.most[h] = most;
        team.total[h] *= kept;
#pragma unroll
        for (int i = 0; i < kElements; ++i) team.sum[h][i] *= kept;
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          scores[u][h] = exponential<T>(scores[u][h] - most);
          team.total[h] += scores[u][h];
        }
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
#pragma unroll
        for (int pack = 0; pack < kPacks; ++pack) {
          float v[kVec];
          unpack<T>(value[u][pack], v);
#pragma unroll
          for (int h = 0; h < kGroup; ++h) {
#pragma unroll
            for (int k = 0; k < kVec; ++k) team.sum[h][pack * kVec + k] += scores[u][h] * v[k];
          }
        }
      }
    }

    // A warp's teams are joined in their registers, the warps in shared memory.
#pragma unroll
    for (int distance = kLanes; distance < 32; distance *= 2) {
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
        float theirs[kElements];
        const float most = __shfl_xor_sync(0xffffffffu, team.most[h], distance);
        const float total = __shfl_xor_sync(0xffffffffu, team.total[h], distance);
#pragma unroll
        for (int i = 0; i < kElements; ++i)
          theirs[i] = __shfl_xor_sync(0xffffffffu, team.sum[h][i], distance);
        team.join(h, most, total, theirs);
      }
    }
    __shared__ float sums[kPagedWarps][kGroup][kSize];
    __shared__ float ends[kPagedWarps][kGroup][2];
    __shared__ float weights[kGroup][kMostSplits];
    __shared__ int last;
    const int warp = thread / 32;
    if (thread % 32 < kLanes) {
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
#pragma unroll
        for (int i = 0; i < kElements; ++i)
          sums[warp][h][(i / kVec * kLanes + team.lane) * kVec + i % kVec] = team.sum[h][i];
        if (team.lane == 0) ends[warp][h][0] = team.most[h], ends[warp][h][1] = team.total[h];
      }
    }
    __syncthreads();
    const int64_t step = size + 2;  // of a partial result: sums, their largest score, their total
    const auto partial = [&](int h, int of) { return c.partial + ((first_head + h) * c.splits + of) * step; };
    for (int at = thread; at < heads * size; at += kPagedThreads) {
      const int h = at / size, i = at % size;
      float most = kBelowAll, total = 0, sum = 0;
#pragma unroll
      for (int w = 0; w < kPagedWarps; ++w) most = fmaxf(most, ends[w][h][0]);
#pragma unroll
      for (int w = 0; w < kPagedWarps; ++w) {
        const float weight = exponential<T>(ends[w][h][0] - most);
        total += ends[w][h][1] * weight, sum += sums[w][h][i] * weight;
      }
      if (splits == 1) {
        out[at] = from_float<T>(sum / total);
      } else {
        float* const to = partial(h, split);
        to[i] = sum;
        if (i == 0) {
          to[size] = most;
          to[size + 1] = total;
        }
      }
    }
    if (splits == 1) return;

    // Whoever ends last joins the blocks' results, in their order.
    __threadfence();
    __syncthreads();
    if (thread == 0) {
      int32_t* counter = c.counters + first_head;
      last = atomicAdd(counter, 1) == splits - 1;
      if (last) *counter = 0;
    }
    __syncthreads();
    if (!last) continue;
    __threadfence();
    static_assert(kMostSplits == 32);  // a warp has a head, a lane a stretch
    for (int h = warp; h < heads; h += kPagedWarps) {
      const int of = thread % 32;
      const float own = of < splits ? load_fresh(partial(h, of) + size) : kBelowAll;
      const float weight = exponential<T>(own - row_max<32>(own, nullptr));
      const float total = of < splits ? load_fresh(partial(h, of) + size + 1) : 0;
      weights[h][of] = weight / row_sum<32>(total * weight, nullptr);
    }
    __syncthreads();
    for (int at = thread; at < heads * size; at += kPagedThreads) {
      const int h = at / size, i = at % size;
      float sum = 0;
#pragma unroll 8
      for (int of = 0; of < splits; ++of) sum += load_fresh(partial(h, of) + i) * weights[h][of];
      out[at] = from_float<T>(sum);
    }
  }
}

/// run(integral constants of the lanes for a key and of the packs of a lane)
template <class T, class Run>
cudaError_t with_lanes(int64_t size, Run&& run) {
  const int64_t packs = size / kWide<T>;
  using One = std::integral_constant<int, 1>;
  if (packs <= 8) return run(std::integral_constant<int, 8>{}, One{});
  if (packs <= 16) return run(std::integral_constant<int, 16>{}, One{});
  if (packs <= 32) return run(std::integral_constant<int, 32>{}, One{});
  if constexpr (std::is_same_v<T, float>)
    if (packs <= 64) return run(std::integral_constant<int, 32>{}, std::integral_constant<int, 2>{});
  return cudaErrorInvalidValue;
}

template <class Run>
cudaError_t with_group(int64_t group, Run&& run) {
  if (group == 1) return run(std::integral_constant<int, 1>{});
  if (group == 2) return run(std::integral_constant<int, 2>{});
  if (group <= 4) return run(std::integral_constant<int, 4>{});
  return run(std::integral_constant<int, 8>{});
}

}  // namespace

int paged_splits(bool apart, int64_t pages_of_row, int64_t page) {
  if (!apart) return 1;  // prompts have tokens enough for all multiprocessors
  return static_cast<int>(
      std::clamp<int64_t>((pages_of_row * page + kLeastKeys - 1) / kLeastKeys, 1, kMostSplits));
}

cudaError_t launch(const PagedAttention& c, cudaStream_t stream) {
  if (c.tokens == 0) return cudaSuccess;
  if (c.tokens > 65535 || c.heads > 65535 || c.pages_of_row * c.page > INT_MAX ||
      c.page != int64_t{1} << c.page_shift)
    return cudaErrorInvalidValue;
  return with_type(c.dtype, [&]<class T>(T) {
    if (c.size % kWide<T> != 0) return cudaErrorInvalidValue;
    if (!c.apart) {
      const dim3 grid(static_cast<unsigned>(c.tokens), static_cast<unsigned>(c.kv_heads));
      const auto status = start(write_pages_kernel<T>, grid, dim3(32), 0, stream, c);
      if (status != cudaSuccess) return status;
    }
    return with_lanes<T>(c.size, [&]<class Lanes, class Packs>(Lanes, Packs) {
      const int64_t group = c.heads / c.kv_heads;
      return with_group(group, [&]<class Group>(Group) {
        const int64_t parts = (group + Group::value - 1) / Group::value;
        // Few enough that those with nothing to do are no burden: others then have several stretches.
        const int64_t blocks =
            std::clamp<int64_t>(kEnoughBlocks / (c.tokens * c.kv_heads * parts), 1, c.splits);
        const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(c.kv_heads * parts),
                        static_cast<unsigned>(c.tokens));
        return start(paged_attention_kernel<T, Lanes::value, Packs::value, Group::value>, grid,
                     dim3(kPagedThreads), 0, stream, c);
      });
    });
  });
}

}  // namespace tightloop::ops::cuda
