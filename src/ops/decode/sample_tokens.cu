#include <climits>

#include "ops/decode/sample_tokens_launch.h"
#include "ops/decode/sampling_math.h"
#include "ops/kernel.cuh"
#include "ops/philox.cuh"

namespace tightloop::ops::cuda {

namespace {

// A block takes a chunk of a row, a thread kEach neighbours of it. The first launch finds the likeliest token
// and counts the scores by their leading bits; the second adds up weights and keeps the likeliest tokens
// aside, and the last of a row's blocks chooses. All that blocks add up are integers, in whatever order.
constexpr int kThreads = 512, kEach = kSampleChunk / kThreads, kWarps = kThreads / 32;
constexpr int kListed = kSampleCandidates / kThreads, kOfBins = kSampleBins / kThreads;
constexpr int kBinShift = 32 - 11;
static_assert(kSampleBins == 1 << 11);

// Columns, as in SampleSettings.
enum { kTemperature, kTopP, kMinP, kPenalty, kValues };
enum { kTopK, kSeed, kSample, kPosition, kVocabSize, kSeenLine, kNumbers };

using Word = unsigned long long;

__device__ inline uint64_t shown_by(uint64_t value, int distance) {
  return __shfl_xor_sync(0xffffffffu, static_cast<Word>(value), distance);
}

/// The block's values joined, for each of its threads. `warps` is shared memory for kWarps of them.
template <class Join>
__device__ inline uint64_t block_join(uint64_t value, uint64_t* warps, Join join) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value = join(value, shown_by(value, distance));
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = warps[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) value = join(value, warps[warp]);
  __syncthreads();  // before the next call writes
  return value;
}
__device__ inline uint64_t block_sum(uint64_t value, uint64_t* warps) {
  return block_join(value, warps, [](uint64_t a, uint64_t b) { return a + b; });
}
__device__ inline uint64_t block_max(uint64_t value, uint64_t* warps) {
  return block_join(value, warps, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
}
/// The sum of the values of the threads before this one.
__device__ inline uint64_t sum_before(uint64_t value, uint64_t* of_threads) {
  of_threads[threadIdx.x] = value;
  for (int distance = 1; distance < kThreads; distance *= 2) {
    __syncthreads();
    const uint64_t other = static_cast<int>(threadIdx.x) >= distance ? of_threads[threadIdx.x - distance] : 0;
    __syncthreads();
    of_threads[threadIdx.x] += other;
  }
  return of_threads[threadIdx.x] - value;
}

/// What a thread knows of its row.
template <class T>
struct SampledRow {
  const T* scores;
  const bool* seen;  // null: no penalty
  int V;             // allowed
  bool whole;        // wide accesses may be made
  bool greedy, cut;  // cut: by top_k or top_p
  int64_t top_k;     // 0: all
  float penalty, per_score;
  double top_p;
  uint64_t least_weight;

  __device__ SampledRow(const SampleTokens& c, int64_t row) {
    const double* values = c.values + row * kValues;
    const int64_t* numbers = c.numbers + row * kNumbers;
    scores = static_cast<const T*>(c.logits) + row * c.stride;
    whole = reinterpret_cast<uintptr_t>(scores) % 16 == 0;
    V = static_cast<int>(numbers[kVocabSize] > 0 && numbers[kVocabSize] < c.V ? numbers[kVocabSize] : c.V);
    penalty = static_cast<float>(values[kPenalty]);
    seen = c.seen && penalty > 0 && penalty != 1 ? c.seen + numbers[kSeenLine] * c.V : nullptr;
    greedy = !(values[kTemperature] > 0);
    per_score = greedy ? 0 : sampling::exponents_per_score(values[kTemperature]);
    top_k = numbers[kTopK] > 0 && numbers[kTopK] < V ? numbers[kTopK] : 0;
    top_p = values[kTopP];
    cut = !greedy && (top_k > 0 || top_p < 1);
    least_weight = sampling::least_weight(values[kMinP]);
  }

  /// The scores from `first` on, as they are but for NaN; those beyond the row are -inf.
  __device__ void raw(int first, float (&values)[kEach]) const {
    if (whole && first + kEach <= V) {
      load(scores + first, values);
    } else {
#pragma unroll
      for (int j = 0; j < kEach; ++j) values[j] = first + j < V ? to_float(scores[first + j]) : -INFINITY;
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) values[j] = sampling::without_nan(values[j]);
  }
  __device__ void penalise(int first, float (&values)[kEach]) const {
    if (!seen) return;
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      if (first + j < V && seen[first + j]) values[j] = sampling::penalised(values[j], penalty);
  }
  __device__ void load_scores(int first, float (&values)[kEach]) const {
    raw(first, values);
    penalise(first, values);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) survey_kernel(SampleTokens c) {
  __shared__ uint64_t warps[kWarps];
  __shared__ uint32_t bins[kSampleBins];
  const SampledRow<T> row(c, blockIdx.y);
  const int begin = static_cast<int>(blockIdx.x) * kSampleChunk, first = begin + threadIdx.x * kEach;
  if (begin >= row.V) return;
  SampleState& state = c.states[blockIdx.y];
  float scores[kEach];
  row.raw(first, scores);
  if (c.logprobs) {
    float most = scores[0];
#pragma unroll
    for (int j = 1; j < kEach; ++j) most = fmaxf(most, scores[j]);
    const auto key = static_cast<uint32_t>(block_max(sampling::key_of(most), warps));
    if (threadIdx.x == 0) atomicMax(&state.raw_best, key);
  }
  row.penalise(first, scores);
  if (row.cut) {
    for (int i = threadIdx.x; i < kSampleBins; i += kThreads) bins[i] = 0;
    __syncthreads();
  }
  uint64_t best = 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    if (first + j >= row.V) continue;
    const uint64_t rank = sampling::rank_of(scores[j], first + j);
    best = rank > best ? rank : best;
    if (row.cut) atomicAdd(&bins[sampling::key_of(scores[j]) >> kBinShift], 1u);
  }
  best = block_max(best, warps);
  if (threadIdx.x == 0) atomicMax(&state.best, static_cast<Word>(best));
  if (!row.cut) return;
  for (int i = threadIdx.x; i < kSampleBins; i += kThreads)
    if (bins[i] > 0) atomicAdd(&state.bins[i], bins[i]);
}

/// The least key whose scores, with all above, are no more than can be kept aside.
__device__ inline uint32_t least_listed(const SampleState& state, uint64_t* of_threads, uint64_t* warps) {
  // Thread 0 has the highest bins.
  const int top = kSampleBins - 1 - static_cast<int>(threadIdx.x) * kOfBins;
  uint64_t counts[kOfBins], all = 0;
#pragma unroll
  for (int i = 0; i < kOfBins; ++i) all += counts[i] = state.bins[top - i];
  uint64_t above = sum_before(all, of_threads), taken = 0;
#pragma unroll
  for (int i = 0; i < kOfBins; ++i) {
    above += counts[i];
    taken += above <= kSampleCandidates;
  }
  const uint64_t bins = block_sum(taken, warps);  // bins from the highest one on
  return bins == kSampleBins ? 0 : static_cast<uint32_t>(kSampleBins - bins) << kBinShift;
}

/// The tokens kept aside, a few to a thread.
struct ListedTokens {
  uint64_t ranks[kListed], weights[kListed];
  template <class See>
  __device__ void each(See&& see) const {
#pragma unroll
    for (int i = 0; i < kListed; ++i)
      if (ranks[i] > 0) see(ranks[i], weights[i]);
  }
};

/// All tokens of the row, read again each time.
template <class T>
struct RowTokens {
  const SampledRow<T>& row;
  float best;
  template <class See>
  __device__ void each(See&& see) const {
    for (int first = threadIdx.x * kEach; first < row.V; first += kSampleChunk) {
      float scores[kEach];
      row.load_scores(first, scores);
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        if (first + j < row.V)
          see(sampling::rank_of(scores[j], first + j), sampling::weight_of(scores[j], best, row.per_score));
    }
  }
};

/// The largest number from `low` to `high` for which `holds`, which it does for `low` and no more above the
/// one sought.
template <class Holds>
__device__ inline uint64_t last_of(uint64_t low, uint64_t high, Holds&& holds) {
  while (low < high) {
    const uint64_t middle = high - (high - low) / 2;
    if (holds(middle))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/// The token that is drawn of what the cuts keep; -1 where more tokens are needed than these. `total` is the
/// weight of the whole row.
template <class T, class Tokens>
__device__ int64_t choose_cut(const Tokens& tokens, const SampledRow<T>& row, uint64_t low, uint64_t best,
                              uint64_t total, uint64_t draw, uint64_t* warps) {
  const auto sum = [&](auto&& value) {
    uint64_t mine = 0;
    tokens.each([&](uint64_t rank, uint64_t weight) { mine += value(rank, weight); });
    return block_sum(mine, warps);
  };
  const auto from = [&](uint64_t least) {  // the weight of these and all above
    return sum([&](uint64_t rank, uint64_t weight) { return rank >= least ? weight : 0; });
  };
  if (row.top_k > 0) {
    const auto wanted = static_cast<uint64_t>(row.top_k);
    const auto count = [&](uint64_t least) {
      return sum([&](uint64_t rank, uint64_t) { return uint64_t{rank >= least}; });
    };
    if (count(low) < wanted) return -1;
    for (uint64_t high = best; low < high;) {
      const uint64_t middle = high - (high - low) / 2, found = count(middle);
      if (found >= wanted) low = middle;
      if (found < wanted) high = middle - 1;
      if (found == wanted) break;
    }
    total = from(low);
  }
  if (row.top_p < 1) {
    const uint64_t wanted = sampling::wanted_of(total, row.top_p);
    const auto enough = [&](uint64_t least) { return from(least) >= wanted; };
    if (!enough(low)) return -1;
    low = last_of(low, best, enough);
  }
  const auto kept = [&](int64_t ids) {  // the weight that is kept of ids below
    return sum([&](uint64_t rank, uint64_t weight) {
      return rank >= low && weight >= row.least_weight && sampling::id_of(rank) < ids ? weight : 0;
    });
  };
  const uint64_t target = sampling::target_of(draw, kept(row.V));
  return static_cast<int64_t>(
      last_of(0, row.V - 1, [&](uint64_t ids) { return kept(static_cast<int64_t>(ids)) <= target; }));
}

/// The token that is drawn of a whole row, by the weights of its chunks.
template <class T>
__device__ int64_t choose_any(const SampledRow<T>& row, const uint64_t* sums, int chunks, float best,
                              uint64_t draw, uint64_t* of_threads, uint64_t* warps) {
  __shared__ int found;
  const uint64_t mine = static_cast<int>(threadIdx.x) < chunks ? sums[threadIdx.x] : 0;
  uint64_t target = sampling::target_of(draw, block_sum(mine, warps));
  const uint64_t before = sum_before(mine, of_threads);
  if (before <= target && target - before < mine) found = static_cast<int>(threadIdx.x);
  __syncthreads();
  const int chunk = found;
  target -= chunk > 0 ? of_threads[chunk - 1] : 0;
  __syncthreads();  // before all is written again
  const int first = chunk * kSampleChunk + static_cast<int>(threadIdx.x) * kEach;
  float scores[kEach];
  row.load_scores(first, scores);
  uint64_t weights[kEach], own = 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    weights[j] = first + j < row.V ? sampling::weight_of(scores[j], best, row.per_score) : 0;
    if (weights[j] < row.least_weight) weights[j] = 0;
    own += weights[j];
  }
  uint64_t rest = sum_before(own, of_threads);
  if (rest <= target && target - rest < own) {
    rest = target - rest;
    int at = 0;
    bool here = true;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      here = here && rest >= weights[j];
      if (here) rest -= weights[j], ++at;
    }
    found = first + at;
  }
  __syncthreads();
  return found;
}

template <class T>
__global__ void __launch_bounds__(kThreads) choose_kernel(SampleTokens c) {
  __shared__ uint64_t warps[kWarps], of_threads[kThreads];
  __shared__ float float_warps[kWarps];
  __shared__ uint32_t shared_count;
  const SampledRow<T> row(c, blockIdx.y);
  const int begin = static_cast<int>(blockIdx.x) * kSampleChunk, first = begin + threadIdx.x * kEach;
  if (begin >= row.V) return;
  const int chunks = (row.V + kSampleChunk - 1) / kSampleChunk;
  SampleState& state = c.states[blockIdx.y];
  uint64_t* const sums = c.sums + blockIdx.y * gridDim.x;
  uint64_t* const candidates = c.candidates + static_cast<int64_t>(blockIdx.y) * kSampleCandidates;
  float* const raw_sums = c.raw_sums + blockIdx.y * gridDim.x;
  const uint64_t best = state.best;
  const float best_score = sampling::score_of(best), raw_best = sampling::score_of_key(state.raw_best);

  float scores[kEach];
  row.raw(first, scores);
  if (c.logprobs) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) sum += expf(scores[j] - raw_best);
    sum = row_sum<kThreads>(sum, float_warps);
    if (threadIdx.x == 0) raw_sums[blockIdx.x] = sum;
  }
  const uint32_t listed = row.cut ? least_listed(state, of_threads, warps) : 0;
  if (!row.greedy) {
    row.penalise(first, scores);
    uint64_t sum = 0;
    uint32_t mine = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if (first + j >= row.V) continue;
      const uint64_t weight = sampling::weight_of(scores[j], best_score, row.per_score);
      if (row.cut || weight >= row.least_weight) sum += weight;
      mine += row.cut && sampling::key_of(scores[j]) >= listed;
    }
    sum = block_sum(sum, warps);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum, shared_count = 0;
    if (row.cut) {
      __syncthreads();
      uint32_t at = mine > 0 ? atomicAdd(&shared_count, mine) : 0;
      __syncthreads();
      if (threadIdx.x == 0) shared_count = atomicAdd(&state.candidates, shared_count);
      __syncthreads();
      at += shared_count;
#pragma unroll
      for (int j = 0; j < kEach; ++j)
        if (mine > 0 && first + j < row.V && sampling::key_of(scores[j]) >= listed)
          candidates[at++] = sampling::rank_of(scores[j], first + j);
    }
  }

  // The last block of the row goes on.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) shared_count = atomicAdd(&state.done, 1u);
  __syncthreads();
  if (shared_count != static_cast<uint32_t>(chunks - 1)) return;
  __threadfence();

  const int64_t* numbers = c.numbers + static_cast<int64_t>(blockIdx.y) * kNumbers;
  const uint4 words = philox(static_cast<uint64_t>(numbers[kSeed]), static_cast<uint64_t>(numbers[kPosition]),
                             static_cast<uint64_t>(numbers[kSample]));
  const uint64_t draw = sampling::draw_of(words.x, words.y);
  int64_t chosen = -1;
  if (row.greedy) {
    chosen = sampling::id_of(best);
  } else if (!row.cut) {
    chosen = choose_any(row, sums, chunks, best_score, draw, of_threads, warps);
  } else {
    const uint64_t total = block_sum(static_cast<int>(threadIdx.x) < chunks ? sums[threadIdx.x] : 0, warps);
    const auto count = static_cast<int>(*static_cast<volatile uint32_t*>(&state.candidates));
    ListedTokens tokens;
#pragma unroll
    for (int i = 0; i < kListed; ++i) {
      const int at = i * kThreads + static_cast<int>(threadIdx.x);
      tokens.ranks[i] = at < count ? candidates[at] : 0;
      tokens.weights[i] =
          at < count ? sampling::weight_of(sampling::score_of(tokens.ranks[i]), best_score, row.per_score)
                     : 0;
    }
    if (count > 0)
      chosen = choose_cut(tokens, row, uint64_t{listed} << sampling::kIdBits, best, total, draw, warps);
    if (chosen < 0) chosen = choose_cut(RowTokens<T>{row, best_score}, row, 0, best, total, draw, warps);
  }
  if (threadIdx.x > 0) return;
  c.ids[blockIdx.y] = chosen;
  if (row.seen) const_cast<bool*>(row.seen)[chosen] = true;
  if (!c.logprobs) return;
  float sum = 0;
  for (int i = 0; i < chunks; ++i) sum += raw_sums[i];
  c.logprobs[blockIdx.y] = sampling::without_nan(to_float(row.scores[chosen])) - raw_best - logf(sum);
}

}  // namespace

cudaError_t launch(const SampleTokens& c, cudaStream_t stream) {
  if (c.rows == 0) return cudaSuccess;
  if (c.V <= 0 || c.V > sampling::kMostTokens || c.rows > USHRT_MAX) return cudaErrorInvalidValue;
  static_assert(sampling::kMostTokens / kSampleChunk <= kThreads);  // a thread for each chunk's sum
  return with_type(c.dtype, [&]<class T>(T) {
    const dim3 grid(static_cast<unsigned>(c.chunks()), static_cast<unsigned>(c.rows));
    const auto status = start(survey_kernel<T>, grid, kThreads, 0, stream, c);
    return status != cudaSuccess ? status : start(choose_kernel<T>, grid, kThreads, 0, stream, c);
  });
}

}  // namespace tightloop::ops::cuda
