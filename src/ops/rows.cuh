#pragma once

// Rows held in registers: short ones by a warp, several of which share a block, long ones by a block. A
// thread has up to kMostChunks times 16 bytes of its row.

#include <algorithm>
#include <climits>

#include "ops/kernel.cuh"

namespace tightloop::ops::cuda {

constexpr int kRowsOfBlock = 4, kLongRowThreads = 256, kMostChunks = 4;
// Where a thread keeps nothing but its row, a warp takes longer ones: 1280 elements would leave a third of a
// block's threads idle.
constexpr int kForwardChunks = 5;

/// This thread's elements of a row: body(chunk, index of its first element).
template <int kVec, int kThreads, int kChunks, class Body>
__device__ inline void for_chunks(int D, Body&& body) {
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int i = (chunk * kThreads + threadIdx.x) * kVec;
    if (i < D) body(chunk, i);
  }
}

/// Rows of several tensors (pointers; null: left out) whose next one is on its way to shared memory while a
/// thread computes with this one. A thread reads what it copied itself, so that nobody waits for anybody.
template <class T, int kTensors, int kThreads, int kRows, int kChunks>
class RowsAhead {
 public:
  static constexpr int kVec = kWide<T>;
  static constexpr size_t kStage = kTensors * kChunks * kThreads * kRows * sizeof(uint4);
  // Very long rows are fetched when they are wanted: cards have from 99 KB for a block.
  static constexpr bool kAhead = 2 * kStage <= (96 << 10);
  static constexpr size_t kBytes = kAhead ? 2 * kStage : kStage;

  __device__ RowsAhead(unsigned char* shared, const void* const (&tensors)[kTensors], int64_t rows, int D)
      : mine_(reinterpret_cast<uint4*>(shared) + threadIdx.y * kThreads + threadIdx.x), rows_(rows), D_(D) {
#pragma unroll
    for (int t = 0; t < kTensors; ++t) tensors_[t] = static_cast<const T*>(tensors[t]);
  }

  /// The first row.
  __device__ void begin(int64_t row) {
    if constexpr (kAhead) copy(row, 0);
  }
  /// Waits for `row`, while `next` begins.
  __device__ void step(int64_t row, int64_t next) {
    if constexpr (kAhead) {
      copy(next, stage_);
      stage_ ^= 1;
      wait_for_copies<1>();
    } else {
      copy(row, 0);
      wait_for_copies<0>();
    }
  }
  __device__ void load(int tensor, int chunk, float (&values)[kVec]) const {
    unpack<T>(*slot(stage_, tensor, chunk), values);
  }

 private:
  __device__ uint4* slot(int stage, int tensor, int chunk) const {
    return mine_ + ((stage * kTensors + tensor) * kChunks + chunk) * kThreads * kRows;
  }
  __device__ void copy(int64_t row, int stage) {
    if (row < rows_)
      for_chunks<kVec, kThreads, kChunks>(D_, [&](int chunk, int i) {
#pragma unroll
        for (int t = 0; t < kTensors; ++t)
          if (tensors_[t]) copy_ahead(slot(stage, t, chunk), tensors_[t] + row * D_ + i);
      });
    close_copies();
  }

  uint4* mine_;
  const T* tensors_[kTensors];
  int64_t rows_;
  int D_, stage_ = kAhead;  // which load() reads from
};

/// Adds what the rows of a block have summed up by column, in order, and leaves it as a part of one
/// (ops/column_sums.cuh). `shared` holds kRows rows.
template <int kVec, int kThreads, int kRows, int kChunks>
__device__ void leave_sums(const float (&sums)[kChunks][kVec], float* shared, float* part, int D) {
  for_chunks<kVec, kThreads, kChunks>(D, [&](int chunk, int i) {
#pragma unroll
    for (int k = 0; k < kVec; ++k) shared[threadIdx.y * D + i + k] = sums[chunk][k];
  });
  __syncthreads();
  for (int i = threadIdx.y * kThreads + threadIdx.x; i < D; i += kThreads * kRows) {
    float total = 0;
#pragma unroll
    for (int row = 0; row < kRows; ++row) total += shared[row * D + i];
    part[i] = total;
  }
  __syncthreads();
}

/// The blocks that share the rows where each sums up columns: at most `each` for a multiprocessor of a
/// Hopper, as many as its registers and, for rows of a few thousand elements, its shared memory hold at once,
/// so that no block waits for another to end.
inline int row_parts(int64_t rows, int each) {
  constexpr int kMultiprocessors = 132;
  return static_cast<int>(
      std::clamp<int64_t>((rows + kRowsOfBlock - 1) / kRowsOfBlock, 1, each * kMultiprocessors));
}

/// run(T{}, integral constants of the threads for a row, of the rows of a block, of the chunks of a thread).
/// kShortChunks: how many of them a row may have that a warp holds.
template <int kShortChunks = kMostChunks, class Run>
cudaError_t with_rows(Dtype dtype, int64_t rows, int64_t D, Run&& run) {
  if (rows > INT_MAX) return cudaErrorInvalidValue;
  return with_type(dtype, [&]<class T>(T) {
    if (D % kWide<T> != 0 || D > kLongRowThreads * kMostChunks * kWide<T>) return cudaErrorInvalidValue;
    const auto with_chunks = [&]<class Threads, class Rows>(Threads threads, Rows rows_of_block) {
      const int64_t each = Threads::value * kWide<T>;
      switch ((D + each - 1) / each) {
        case 1:
          return run(T{}, threads, rows_of_block, std::integral_constant<int, 1>{});
        case 2:
          return run(T{}, threads, rows_of_block, std::integral_constant<int, 2>{});
        case 3:
          return run(T{}, threads, rows_of_block, std::integral_constant<int, 3>{});
        case kMostChunks:
          return run(T{}, threads, rows_of_block, std::integral_constant<int, kMostChunks>{});
        default:
          return run(T{}, threads, rows_of_block, std::integral_constant<int, kShortChunks>{});
      }
    };
    if (D <= 32 * kShortChunks * kWide<T>)
      return with_chunks(std::integral_constant<int, 32>{}, std::integral_constant<int, kRowsOfBlock>{});
    return with_chunks(std::integral_constant<int, kLongRowThreads>{}, std::integral_constant<int, 1>{});
  });
}

/// Blocks of `rows_of_block` rows that hold them all.
inline unsigned row_blocks(int64_t rows, int rows_of_block) {
  return static_cast<unsigned>((rows + rows_of_block - 1) / rows_of_block);
}

}  // namespace tightloop::ops::cuda
