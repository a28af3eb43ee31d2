#include <climits>

#include "ops/decode/likeliest_tokens_launch.h"
#include "ops/decode/sampling_math.h"
#include "ops/kernel.cuh"

namespace tightloop::ops::cuda {

namespace {

// A block has a row, and reads it twice: the second time it is in a cache near by. The first pass gives each
// thread the best of its tokens. The `count`-th best of these is a rank that at least `count` tokens reach,
// and those that do are all with the `count` threads that have these: few enough, mostly, to be listed in
// shared memory and put in order there.
constexpr int kThreads = 256, kListed = 2048;
static_assert(kMostLikeliest <= kThreads);

using Word = unsigned long long;

/// What a thread knows of its row.
template <class T>
struct LikelyRow {
  const T* scores;
  const bool* forbidden;
  int V;
  int64_t only;
  bool whole;  // wide accesses may be made

  __device__ LikelyRow(const LikeliestTokens& c, int64_t row)
      : scores(static_cast<const T*>(c.logits) + row * c.stride),
        forbidden(c.forbidden),
        V(static_cast<int>(c.V)),
        only(c.only ? c.only[row] : -1),
        whole(reinterpret_cast<uintptr_t>(scores) % 16 == 0) {}

  __device__ bool allowed(int id) const { return (only < 0 || id == only) && !(forbidden && forbidden[id]); }
  /// see(id, score) for the thread's tokens, without NaN.
  template <class See>
  __device__ void each(See&& see) const {
    constexpr int kEach = kWide<T>;
    for (int first = static_cast<int>(threadIdx.x) * kEach; first < V; first += kThreads * kEach) {
      float values[kEach];
      if (whole && first + kEach <= V) {
        load(scores + first, values);
      } else {
#pragma unroll
        for (int j = 0; j < kEach; ++j) values[j] = first + j < V ? to_float(scores[first + j]) : 0;
      }
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        if (first + j < V) see(first + j, sampling::without_nan(values[j]));
    }
  }
};

__device__ inline uint64_t block_max(uint64_t value, uint64_t* warps) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, static_cast<Word>(value), distance);
    value = other > value ? other : value;
  }
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  for (int warp = 0; warp < kThreads / 32; ++warp) value = warps[warp] > value ? warps[warp] : value;
  __syncthreads();  // before the next call writes
  return value;
}

template <class T>
__global__ void __launch_bounds__(kThreads) likeliest_kernel(const LikeliestTokens c) {
  __shared__ uint64_t list[kListed], of_threads[kThreads];
  __shared__ float float_warps[kThreads / 32];
  __shared__ uint64_t least;
  __shared__ int listed;
  const LikelyRow<T> row(c, blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x), count = static_cast<int>(c.count);

  uint64_t mine = 0;
  float best = -INFINITY;
  row.each([&](int id, float score) {
    best = fmaxf(best, score);
    if (!row.allowed(id)) return;
    const uint64_t rank = sampling::rank_of(score, id);
    mine = rank > mine ? rank : mine;
  });
  of_threads[thread] = mine;
  if (thread == 0) least = 1, listed = 0;  // all ranks are above 0
  best = row_max<kThreads>(best, float_warps);
  int above = 0;
  for (int i = 0; i < kThreads; ++i) above += of_threads[i] > mine;
  if (mine > 0 && above == count - 1) least = mine;
  __syncthreads();

  float sum = 0;
  row.each([&](int id, float score) {
    sum += score == best ? 1 : expf(score - best);  // both may be infinite
    if (!row.allowed(id)) return;
    const uint64_t rank = sampling::rank_of(score, id);
    if (rank < least) return;
    const int at = atomicAdd(&listed, 1);
    if (at < kListed) list[at] = rank;
  });
  const float log_sum = logf(row_sum<kThreads>(sum, float_warps));
  const auto give = [&](int place, uint64_t rank) {
    const int64_t at = static_cast<int64_t>(blockIdx.x) * count + place;
    const float score = sampling::score_of(rank);
    c.ids[at] = rank > 0 ? sampling::id_of(rank) : 0;
    c.log_p[at] = rank > 0 ? (score == best ? 0 : score - best) - log_sum : -INFINITY;
  };
  if (listed <= kListed) {
    for (int i = thread; i < listed; i += kThreads) {
      int place = 0;
      for (int j = 0; j < listed && place < count; ++j) place += list[j] > list[i];
      if (place < count) give(place, list[i]);
    }
    for (int place = listed + thread; place < count; place += kThreads) give(place, 0);
    return;
  }
  uint64_t before = ~uint64_t{0};
  for (int place = 0; place < count; ++place) {
    uint64_t next = 0;
    row.each([&](int id, float score) {
      const uint64_t rank = sampling::rank_of(score, id);
      if (rank < before && rank > next && row.allowed(id)) next = rank;
    });
    before = block_max(next, of_threads);
    if (thread == 0) give(place, before);
  }
}

}  // namespace

cudaError_t launch(const LikeliestTokens& c, cudaStream_t stream) {
  if (c.rows == 0) return cudaSuccess;
  if (c.V <= 0 || c.V > sampling::kMostTokens || c.count < 1 || c.count > kMostLikeliest || c.rows > INT_MAX)
    return cudaErrorInvalidValue;
  return with_type(c.dtype, [&]<class T>(T) {
    return start(likeliest_kernel<T>, static_cast<unsigned>(c.rows), kThreads, 0, stream, c);
  });
}

}  // namespace tightloop::ops::cuda
