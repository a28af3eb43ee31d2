#include "ops/attention/split_heads_launch.h"

#include <algorithm>
#include <climits>

#include "ops/column_sums.cuh"
#include "ops/kernel.cuh"

namespace tightloop::ops::cuda {

namespace {

// A warp has all heads of a position (few positions: some of them), so that a thread reads its angles once. A
// head is held by the next power of two of threads; each has 16 bytes of its first half and their partners in
// the second.
constexpr int kWarps = 8, kMostParts = 264;
constexpr int64_t kEnoughHeads = 256;  // blocks, for all multiprocessors

enum class Norm { kNone, kPlain, kWeighted };

/// body(half, k) for each of a thread's elements, x[half][k].
template <int kVec, class Body>
__device__ inline void for_elements(Body&& body) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int k = 0; k < kVec; ++k) body(half, k);
  }
}

/// The threads that hold a head, each kVec elements of its halves.
template <int kVec>
__host__ __device__ constexpr int threads_of_head(int half) {
  int threads = 1;
  while (threads * kVec < half) threads *= 2;
  return threads;
}

/// A thread's index among those of its head, and its head's among those that its warp holds at a time.
template <int kVec>
struct HeadThread {
  int half, threads, group, groups, i;
  bool works;  // the last ones of a head may have nothing to do

  __device__ explicit HeadThread(int size) : half(size / 2), threads(threads_of_head<kVec>(half)) {
    group = static_cast<int>(threadIdx.x) / threads;
    groups = 32 / threads;
    i = static_cast<int>(threadIdx.x) % threads * kVec;
    works = i < half;
  }
  /// One value of each of a head's threads, added up for all of them. Every thread of the warp must call.
  __device__ float sum(float value) const {
    for (int distance = threads / 2; distance > 0; distance /= 2)
      value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
  }
  template <class T>
  __device__ void read(const T* head, float (&x)[2][kVec]) const {
    load(head + i, x[0]);
    load(head + i + half, x[1]);
  }
  template <class T>
  __device__ void write(T* head, const float (&x)[2][kVec]) const {
    store(head + i, x[0]);
    store(head + i + half, x[1]);
  }
  /// 1 / rms of a head.
  __device__ float scale(const float (&x)[2][kVec], float eps) const {
    float squares = 0;
    for_elements<kVec>([&](int part, int k) { squares += x[part][k] * x[part][k]; });
    return 1.0f / sqrtf(sum(squares) / static_cast<float>(2 * half) + eps);
  }
};

template <int kVec>
struct Angles {
  float cos[kVec] = {}, sin[kVec] = {};

  __device__ Angles(const SplitHeadsCall& c, int row, int t, const HeadThread<kVec>& thread) {
    if (!thread.works) return;
    const int64_t position = c.positions ? max(c.positions[row], 0) : c.offset + t;
    const int64_t at = position * thread.half + thread.i;
    load(c.cos + at, cos);
    load(c.sin + at, sin);
  }
  __device__ void turn(float (&x)[2][kVec], float sign) const {
#pragma unroll
    for (int k = 0; k < kVec; ++k) {
      const float a = x[0][k], b = x[1][k], s = sign * sin[k];
      x[0][k] = a * cos[k] - b * s;
      x[1][k] = b * cos[k] + a * s;
    }
  }
};

template <class T, int kVec>
__device__ inline void multiply_by_weight(const SplitHeadsCall& c, bool key, const HeadThread<kVec>& thread,
                                          float (&x)[2][kVec]) {
  const void* weight = key ? c.k_weight : c.q_weight;
  float w[2][kVec];
  if (c.float_weight)
    thread.read(static_cast<const float*>(weight), w);
  else
    thread.read(static_cast<const T*>(weight), w);
  for_elements<kVec>([&](int part, int k) { x[part][k] *= w[part][k]; });
}

/// Where a position's heads start; nothing where there are none.
template <class T>
__device__ inline const T* at_position(const StridedHeads& heads, int b, int t) {
  if (!heads.data) return nullptr;
  return static_cast<const T*>(heads.data) + b * heads.stride_batch + t * heads.stride_length;
}

template <class T, Norm kNorm>
__global__ void __launch_bounds__(32 * kWarps, 4) split_heads_forward_kernel(const SplitHeadsForward f) {
  constexpr int kVec = kWide<T>;
  const SplitHeadsCall& c = f.call;
  const int H = static_cast<int>(c.heads), K = static_cast<int>(c.kv_heads), S = static_cast<int>(c.size);
  const int length = static_cast<int>(c.length), row = static_cast<int>(blockIdx.x * kWarps + threadIdx.y);
  if (row >= static_cast<int>(c.batch) * length) return;  // whole warps
  const int b = row / length, t = row % length;
  const HeadThread<kVec> thread(S);
  const Angles<kVec> angles(c, row, t, thread);
  const T* from = at_position<T>(c.qkv, b, t);
  T *queries = static_cast<T*>(f.q) + static_cast<int64_t>(row) * H * S,
    *keys = static_cast<T*>(f.k) + static_cast<int64_t>(row) * K * S;
  const int step = thread.groups * static_cast<int>(gridDim.y);
  for (int first = static_cast<int>(blockIdx.y) * thread.groups; first < H + K; first += step) {
    const int head = first + thread.group;
    const bool works = thread.works && head < H + K, key = head >= H;
    float x[2][kVec] = {};
    if (works) thread.read(from + head * c.qkv.stride_head, x);
    if constexpr (kNorm != Norm::kNone) {
      const float scale = thread.scale(x, c.eps);
      for_elements<kVec>([&](int part, int k) { x[part][k] *= scale; });
      if constexpr (kNorm == Norm::kWeighted)
        if (works) multiply_by_weight<T>(c, key, thread, x);
    }
    angles.turn(x, 1);
    if (works) thread.write(key ? keys + (head - H) * S : queries + head * S, x);
  }
}

/// Adds what a block's threads have summed up, in order, and leaves it as a part: queries' weight, keys'.
template <int kVec>
__device__ void leave(const HeadThread<kVec>& thread, const float (&dq_weight)[2][kVec],
                      const float (&dk_weight)[2][kVec], float* part) {
  auto* shared = reinterpret_cast<float*>(dynamic_shared());
  const int S = 2 * thread.half, slots = kWarps * thread.groups;
  float* mine = shared + (static_cast<int>(threadIdx.y) * thread.groups + thread.group) * 2 * S;
  if (thread.works) {
    thread.write(mine, dq_weight);
    thread.write(mine + S, dk_weight);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y * 32 + threadIdx.x); i < 2 * S; i += 32 * kWarps) {
    float total = 0;
    for (int slot = 0; slot < slots; ++slot) total += shared[slot * 2 * S + i];
    part[i] = total;
  }
}

template <class T, Norm kNorm>
__global__ void __launch_bounds__(32 * kWarps, kNorm == Norm::kWeighted ? 2 : 3)
    split_heads_backward_kernel(const SplitHeadsBackward f) {
  constexpr int kVec = kWide<T>;
  const SplitHeadsCall& c = f.call;
  const int H = static_cast<int>(c.heads), K = static_cast<int>(c.kv_heads), S = static_cast<int>(c.size);
  const HeadThread<kVec> thread(S);
  float dq_weight[2][kVec] = {}, dk_weight[2][kVec] = {};
  Largest<T> largest(f.most);
  const int length = static_cast<int>(c.length), rows = static_cast<int>(c.batch) * length;
  for (int row = static_cast<int>(blockIdx.x * kWarps + threadIdx.y); row < rows;
       row += static_cast<int>(gridDim.x) * kWarps) {
    const int b = row / length, t = row % length;
    const Angles<kVec> angles(c, row, t, thread);
    const T *from = at_position<T>(c.qkv, b, t), *dq = at_position<T>(f.dq, b, t),
            *dk = at_position<T>(f.dk, b, t), *dv = at_position<T>(f.dv, b, t);
    T* to = static_cast<T*>(f.dqkv) + static_cast<int64_t>(row) * ((H + 2 * K) * S);
    for (int first = 0; first < H + K; first += thread.groups) {
      const int head = first + thread.group;
      const bool works = thread.works && head < H + K, key = head >= H;
      const T* gradient = key ? dk : dq;
      float g[2][kVec] = {};
      if (works && gradient)
        thread.read(gradient + (key ? (head - H) * f.dk.stride_head : head * f.dq.stride_head), g);
      if constexpr (kNorm == Norm::kNone) {
        angles.turn(g, -1);
      } else {
        float x[2][kVec] = {}, dot = 0;
        if (works) thread.read(from + head * c.qkv.stride_head, x);
        const float scale = thread.scale(x, c.eps);
        angles.turn(g, -1);
        for_elements<kVec>([&](int part, int k) { x[part][k] *= scale; });
        if constexpr (kNorm == Norm::kWeighted) {
          if (works && key)
            for_elements<kVec>([&](int part, int k) { dk_weight[part][k] += g[part][k] * x[part][k]; });
          else if (works)
            for_elements<kVec>([&](int part, int k) { dq_weight[part][k] += g[part][k] * x[part][k]; });
          if (works) multiply_by_weight<T>(c, key, thread, g);
        }
        for_elements<kVec>([&](int part, int k) { dot += g[part][k] * x[part][k]; });
        dot = thread.sum(dot) / static_cast<float>(S);
        for_elements<kVec>([&](int part, int k) { g[part][k] = scale * (g[part][k] - x[part][k] * dot); });
      }
      if (works) {
        largest.see(g[0]);
        largest.see(g[1]);
        thread.write(to + head * S, g);
      }
    }
    for (int head = thread.group; head < K && thread.works; head += thread.groups) {
      float g[2][kVec] = {};
      if (dv) thread.read(dv + head * f.dv.stride_head, g);
      largest.see(g[0]);
      largest.see(g[1]);
      thread.write(to + (H + K + head) * S, g);
    }
  }
  largest.leave();
  if constexpr (kNorm == Norm::kWeighted)
    leave(thread, dq_weight, dk_weight, f.partial + static_cast<int64_t>(blockIdx.x) * 2 * S);
}

/// run(T{}, integral constant of the norm)
template <class Run>
cudaError_t with_norm(const SplitHeadsCall& c, Run&& run) {
  if (c.batch * c.length > INT_MAX / 4 || (c.heads + 2 * c.kv_heads) * c.size > INT_MAX)
    return cudaErrorInvalidValue;
  return with_type(c.dtype, [&]<class T>(T) {
    const int64_t half = c.size / 2;
    if (half % kWide<T> != 0 || half > 32 * kWide<T>) return cudaErrorInvalidValue;
    if (!c.normed) return run(T{}, std::integral_constant<Norm, Norm::kNone>{});
    if (!c.q_weight) return run(T{}, std::integral_constant<Norm, Norm::kPlain>{});
    return run(T{}, std::integral_constant<Norm, Norm::kWeighted>{});
  });
}

unsigned blocks_for(int64_t rows) { return static_cast<unsigned>((rows + kWarps - 1) / kWarps); }

}  // namespace

cudaError_t launch(const SplitHeadsForward& f, cudaStream_t stream) {
  const int64_t rows = f.call.batch * f.call.length;
  if (rows == 0) return cudaSuccess;
  return with_norm(f.call, [&]<class T, class Normed>(T, Normed) {
    // Few positions, as in decoding, have their heads shared among blocks.
    const int64_t together = 32 / threads_of_head<kWide<T>>(static_cast<int>(f.call.size / 2));
    const int64_t groups = (f.call.heads + f.call.kv_heads + together - 1) / together;
    const dim3 grid(blocks_for(rows),
                    static_cast<unsigned>(std::clamp<int64_t>(kEnoughHeads / blocks_for(rows), 1, groups)));
    return start(split_heads_forward_kernel<T, Normed::value>, grid, dim3(32, kWarps), 0, stream, f);
  });
}

int split_heads_parts(int64_t positions) {
  return static_cast<int>(std::clamp<int64_t>(blocks_for(positions), 1, kMostParts));
}

cudaError_t launch(const SplitHeadsBackward& f, cudaStream_t stream) {
  const int64_t rows = f.call.batch * f.call.length;
  return with_norm(f.call, [&]<class T, class Normed>(T, Normed) {
    const auto kernel = split_heads_backward_kernel<T, Normed::value>;
    const dim3 block(32, kWarps);
    if constexpr (Normed::value != Norm::kWeighted) {
      return rows == 0 ? cudaSuccess : start(kernel, blocks_for(rows), block, 0, stream, f);
    } else {
      const int parts = split_heads_parts(rows), S = static_cast<int>(f.call.size);
      const size_t shared = sizeof(float) * kWarps * (32 / threads_of_head<kWide<T>>(S / 2)) * 2 * S;
      const auto status = start(kernel, parts, block, shared, stream, f);
      if (status != cudaSuccess) return status;
      const ColumnSums<2> sums{{f.dq_weight, f.dk_weight}, S};
      return f.call.float_weight ? finish_sums<float, 2>(f.partial, parts, sums, stream)
                                 : finish_sums<T, 2>(f.partial, parts, sums, stream);
    }
  });
}

}  // namespace tightloop::ops::cuda
