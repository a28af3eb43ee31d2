#include <algorithm>
#include <cfloat>
#include <climits>

#include "ops/kernel.cuh"
#include "ops/loss/cross_entropy_launch.h"

namespace tightloop::ops::cuda {

namespace {

// A block has one row at a time, and keeps as much of it as fits in shared memory between the softmax and the
// gradient, so that global memory is read once and written once. Each thread fetches the next row's elements
// into the place of those whose gradient it has just written. Where two blocks fit on a multiprocessor, one
// computes while the other waits for memory; a longer row has all threads for itself.
constexpr int kFewThreads = 128, kThreads = 512, kMostThreads = 1024;
constexpr int kShort = 8192;            // tokens
constexpr int kHalfShared = 112 << 10;  // bytes: two blocks of a Hopper fit
constexpr float kLargestDirectCap =
    30;  // exp(-2 cap), the smallest that is summed, is far above fp32's smallest

/// Rows start anywhere that their elements may: `packs` of 16 bytes in the middle, single elements around.
template <class T>
struct Split {
  int head, packs, singles;

  __device__ Split(const T* x, const T* gradient, int V) {
    const auto from = reinterpret_cast<uintptr_t>(x), to = reinterpret_cast<uintptr_t>(gradient);
    const bool alike = !gradient || from % 16 == to % 16;
    head = alike ? min(V, static_cast<int>((16 - from % 16) % 16 / sizeof(T))) : V;
    packs = (V - head) / kWide<T>;
    singles = V - packs * kWide<T>;
  }
  __device__ int single(int i) const { return i < head ? i : i + packs * kWide<T>; }
  __device__ int first_of(int pack) const { return head + pack * kWide<T>; }
};

/// body(pack, its 16 bytes) for this thread's share of packs in [begin, end), four loads at a time.
template <int kBlock, class Body>
__device__ inline void for_packs(const uint4* from, int begin, int end, Body&& body) {
  constexpr int kBatch = 4;
  for (int first = begin + threadIdx.x; first < end; first += kBatch * kBlock) {
    uint4 batch[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k)
      if (first + k * kBlock < end) batch[k] = from[first + k * kBlock];
#pragma unroll
    for (int k = 0; k < kBatch; ++k)
      if (first + k * kBlock < end) body(first + k * kBlock, batch[k]);
  }
}

/// A thread's part of a row's softmax, from one pass: sum of exp(z - largest), the largest z seen so far.
struct Softmax {
  float largest = -FLT_MAX;  // not -inf: a masked logit less that would be NaN
  float sum = 0, total = 0;  // total: of z, for label smoothing
  bool beaten = false;

  template <int kCount>
  __device__ void add(const float (&z)[kCount], bool smoothing) {
    float most = z[0];
#pragma unroll
    for (int k = 1; k < kCount; ++k) most = fmaxf(most, z[k]);
    if (most > largest) {
      sum *= __expf(largest - most);
      largest = most;
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) sum += __expf(z[k] - largest);
    if (smoothing)
#pragma unroll
      for (int k = 0; k < kCount; ++k) total += z[k];
  }
};

/// A row's logits, and where their gradient goes.
template <class T>
struct Row {
  const T* x;
  T* gradient;
  int64_t wanted;
  bool learned;  // its target is an id
  Split<T> split;
  const uint4* packs;

  __device__ Row(const CrossEntropyRows& c, int64_t row)
      : x(static_cast<const T*>(c.logits) + row * c.stride),
        gradient(c.gradient ? static_cast<T*>(c.gradient) + row * c.gradient_stride : nullptr),
        wanted(row < c.rows ? c.targets[row] : -1),
        learned(wanted >= 0 && wanted < c.V),
        split(x, gradient, static_cast<int>(c.V)),
        packs(reinterpret_cast<const uint4*>(x + split.head)) {}

  /// How many of its packs are fetched ahead, if `held` have room.
  __device__ int ahead(int held) const { return learned ? min(held, split.packs) : 0; }
};

/// One that has nothing to learn, or a mistake, which shows as NaN.
template <class T, int kBlock>
__device__ void write_unlearned(const CrossEntropyRows& c, int64_t at, const Row<T>& row) {
  const float value = row.wanted == c.ignored ? 0.0f : NAN;
  if (threadIdx.x == 0) {
    c.losses[at] = value;
    if (c.correct) c.correct[at] = false;
  }
  if (!row.gradient) return;
  float values[kWide<T>];
#pragma unroll
  for (int k = 0; k < kWide<T>; ++k) values[k] = value;
  for (int i = threadIdx.x; i < row.split.singles; i += kBlock)
    row.gradient[row.split.single(i)] = from_float<T>(value);
  for (int p = threadIdx.x; p < row.split.packs; p += kBlock)
    store(row.gradient + row.split.first_of(p), values);
}

template <class T, int kBlock, bool kCapped>
__device__ void write_row(const CrossEntropyRows& c, int64_t at, const Row<T>& row, const Row<T>& next,
                          uint4* row_packs, float* warps, int held) {
  const int V = static_cast<int>(c.V);
  const T* x = row.x;
  T* gradient = row.gradient;
  const Split<T>& split = row.split;
  const int target = static_cast<int>(row.wanted);
  const float at_target = to_float(x[target]);  // before the gradient may overwrite it
  const float cap = c.softcap, inverse = 1 / cap, smoothing = c.label_smoothing;
  Softmax part;
  // Capped logits need no running maximum, and what their gradients come to but for a factor of the row is
  // known in the first pass: it takes the logits' place in shared memory, rounded once more.
  // Not in fp16, which has no room for such small numbers.
  const bool direct = kCapped && !std::is_same_v<T, __half> && smoothing == 0 && cap <= kLargestDirectCap;
  if (direct) part.largest = cap;
  const auto add_direct = [&](float(&v)[kWide<T>]) {
#pragma unroll
    for (int k = 0; k < kWide<T>; ++k) {
      const float r = __fdividef(1.0f, 1.0f + __expf(2 * inverse * v[k]));  // tanh is 1 - 2 r
      const float p = __expf(-2 * cap * r);
      part.sum += p;
      v[k] = 4 * p * r * (1 - r);
    }
  };
  const auto compare = [&]<int kCount>(const float(&v)[kCount], int first) {
    if (c.correct)
#pragma unroll
      for (int k = 0; k < kCount; ++k)
        part.beaten |= !(v[k] < at_target || (v[k] == at_target && first + k >= target));
  };
  const auto add = [&]<int kCount>(float(&v)[kCount], int first) {
    compare(v, first);
    if constexpr (kCapped)
#pragma unroll
      for (int k = 0; k < kCount; ++k) v[k] = cap * coarse_tanh(v[k] * inverse);
    part.add(v, smoothing > 0);
  };
  const auto add_pack = [&](int p, uint4 raw) {
    float v[kWide<T>];
    unpack<T>(raw, v);
    if (direct) {
      compare(v, split.first_of(p));
      add_direct(v);
      if (p < held) store(reinterpret_cast<T*>(row_packs + p), v);
    } else {
      add(v, split.first_of(p));
    }
  };
  const int kept = row.ahead(held);
  wait_for_copies<0>();
  for_packs<kBlock>(row_packs, 0, kept, add_pack);
  for_packs<kBlock>(row.packs, kept, split.packs, add_pack);
  for (int i = threadIdx.x; i < split.singles; i += kBlock) {
    float v[1] = {to_float(x[split.single(i)])};
    add(v, split.single(i));
  }

  const float largest = row_max<kBlock>(part.largest, warps);
  const float sum = row_sum<kBlock>(part.sum * __expf(part.largest - largest), warps);
  const float total = smoothing > 0 ? row_sum<kBlock>(part.total, warps) : 0;
  const bool beaten = c.correct && __syncthreads_or(part.beaten);
  const float log_sum = logf(sum), all = log_sum + largest;
  const float t_target = kCapped ? coarse_tanh(at_target * inverse) : 0;
  const float z_target = kCapped ? cap * t_target : at_target;
  if (threadIdx.x == 0) {
    float loss = log_sum + (largest - z_target);
    if (smoothing > 0) {
      const float mean = log_sum + (largest - total / static_cast<float>(V));
      loss = (1 - smoothing) * loss + smoothing * mean;
    }
    c.losses[at] = loss + c.z_loss * all * all;
    if (c.correct) c.correct[at] = !beaten;
  }
  if (!gradient) return;

  const float scale = c.scale ? *c.scale : 1;
  const float of_sum = scale * (1 + 2 * c.z_loss * all) / sum;
  const float spread = scale * smoothing / static_cast<float>(V);
  const auto slopes = [&]<int kCount>(float(&v)[kCount]) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      if constexpr (kCapped) {
        const float t = coarse_tanh(v[k] * inverse);
        v[k] = (__expf(cap * t - largest) * of_sum - spread) * (1 - t * t);
      } else {
        v[k] = __expf(v[k] - largest) * of_sum - spread;
      }
    }
  };
  const auto write = [&](int p, uint4 raw) {
    float v[kWide<T>];
    unpack<T>(raw, v);
    slopes(v);
    store(gradient + split.first_of(p), v);
  };
  // In place, each thread has read what it overwrites, and nobody else reads it: the packs are its own.
  const int fetched = next.ahead(held);
  for (int p = threadIdx.x; p < max(kept, fetched); p += kBlock) {
    if (p < kept && direct) {
      float v[kWide<T>];
      unpack<T>(row_packs[p], v);
#pragma unroll
      for (int k = 0; k < kWide<T>; ++k) v[k] *= of_sum;
      store(gradient + split.first_of(p), v);
    } else if (p < kept) {
      write(p, row_packs[p]);
    }
    if (p < fetched) copy_ahead(row_packs + p, next.packs + p);
  }
  for_packs<kBlock>(row.packs, kept, split.packs, write);
  for (int i = threadIdx.x; i < split.singles; i += kBlock) {
    float v[1] = {to_float(x[split.single(i)])};
    slopes(v);
    gradient[split.single(i)] = from_float<T>(v[0]);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    const float of_target = __expf(z_target - largest) * of_sum - spread - scale * (1 - smoothing);
    gradient[target] = from_float<T>(of_target * (1 - t_target * t_target));
  }
}

template <class T, int kBlock, bool kCapped>
__global__ void __launch_bounds__(kBlock, kMostThreads / kBlock)
    cross_entropy_kernel(const CrossEntropyRows c, int held) {
  auto* row_packs = reinterpret_cast<uint4*>(dynamic_shared());
  __shared__ float warps[kBlock / 32];
  const auto fetch = [&](const Row<T>& row) {
    for (int p = threadIdx.x; p < row.ahead(held); p += kBlock) copy_ahead(row_packs + p, row.packs + p);
  };
  Row<T> row(c, blockIdx.x);
  fetch(row);
  for (int64_t at = blockIdx.x; at < c.rows; at += gridDim.x) {
    const Row<T> next(c, at + gridDim.x);
    if (row.learned) {
      close_copies();
      write_row<T, kBlock, kCapped>(c, at, row, next, row_packs, warps, held);
    } else {
      write_unlearned<T, kBlock>(c, at, row);
      fetch(next);
    }
    row = next;
  }
}

// most: bytes of shared memory a block may have.
template <class T, int kBlock>
cudaError_t run(const CrossEntropyRows& c, int held, int most, cudaStream_t stream) {
  const auto kernel =
      c.softcap > 0 ? cross_entropy_kernel<T, kBlock, true> : cross_entropy_kernel<T, kBlock, false>;
  return start_resident(most, kernel, c.rows, kBlock, held * 16, stream, c, held);
}

}  // namespace

cudaError_t launch(const CrossEntropyRows& c, cudaStream_t stream) {
  if (c.rows == 0) return cudaSuccess;
  if (c.rows > INT_MAX || c.V > INT_MAX / 2 || c.V == 0) return cudaErrorInvalidValue;
  int most = 0;
  if (const auto status = most_shared(most); status != cudaSuccess) return status;
  most -= 1024;  // for the kernel's own
  return with_type(c.dtype, [&]<class T>(T) {
    const int64_t packs = c.V / kWide<T>;
    const int held = c.gradient ? static_cast<int>(std::min<int64_t>(packs, most / 16)) : 0;
    if (c.V <= kShort) return run<T, kFewThreads>(c, held, most, stream);
    if (held * 16 <= kHalfShared) return run<T, kThreads>(c, held, most, stream);
    return run<T, kMostThreads>(c, held, most, stream);
  });
}

}  // namespace tightloop::ops::cuda
