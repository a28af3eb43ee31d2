#include <climits>
#include <type_traits>

#include "ops/kernel.cuh"
#include "ops/quantized_linear_launch.h"
#include "ops/quantized_weight.h"

namespace tightloop::ops::cuda {

namespace {

// As few_rows.cu: a block has a few rows of the weight, its warps take turns along them, tensor cores
// multiply (x: 16 rows; 8 rows of the weight), a lane loads 16 bytes of a row of the weight at a time. The
// integers are exact in 16 bits, so that nothing is rounded before the sums.

template <class T>
using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

/// Pairs of 16-bit numbers in a register.
template <class T>
__device__ inline uint32_t minus(uint32_t a, uint32_t b) {
  const Two<T> both = __hsub2(reinterpret_cast<const Two<T>&>(a), reinterpret_cast<const Two<T>&>(b));
  return reinterpret_cast<const uint32_t&>(both);
}

/// 2^7 in bf16 and 2^10 in fp16, twice: integers below that, put into the last bits, are added to it.
template <class T>
constexpr uint32_t kBase = std::is_same_v<T, __half> ? 0x64006400 : 0x43004300;

/// 16 integers of 8 bits to 16 bytes.
struct Int8 {
  static constexpr int kElements = 16;
  static constexpr bool kGroups = false;

  /// Pairs of the 8 from 8 * part on.
  template <class T>
  __device__ static void unpack(const uint4& raw, int part, uint32_t, uint32_t (&pairs)[4]) {
    const uint32_t words[2] = {part ? raw.z : raw.x, part ? raw.w : raw.y};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t bytes = __byte_perm(words[i / 2], 0, i % 2 ? 0x4342 : 0x4140);
      if constexpr (std::is_same_v<T, __half>)
        pairs[i] = minus<T>(kBase<T> | (bytes ^ 0x00800080), 0x64806480);  // 1024 + 128 + v, less the former
      else  // 128 + the lower 7 bits, less 128, or 256 where the sign is set
        pairs[i] = minus<T>(kBase<T> | (bytes & 0x007f007f), kBase<T> | (bytes & 0x00800080));
    }
  }
};

/// 32 of 4 bits; four lanes together have a group.
struct Int4 {
  static constexpr int kElements = 32;
  static constexpr bool kGroups = true;

  template <class T>
  __device__ static void unpack(const uint4& raw, int part, uint32_t zero, uint32_t (&pairs)[4]) {
    const uint32_t word = part == 0 ? raw.x : part == 1 ? raw.y : part == 2 ? raw.z : raw.w;
    const uint32_t less = kBase<T> | zero | zero << 16;
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = minus<T>(kBase<T> | (word >> (4 * i) & 0x000f000f), less);
  }
};

constexpr uint4 kNothing{0, 0, 0, 0};
constexpr int kTile = 8;  // rows of the weight that are multiplied at once

/// kTiles tiles to a block; kHigh: x has more than 8 rows.
template <class T, class Format, int kWarps, int kUnroll, int kTiles, bool kHigh>
__global__ void __launch_bounds__(kWarps * 32)
    quantized_kernel(const T* x, const unsigned char* weight, int64_t row_bytes, const T* bias, T* y, int N,
                     int I, int O) {
  constexpr int kElements = Format::kElements, kOfWarp = 4 * kElements, kStep = kWarps * kOfWarp;
  constexpr int kOutputs = kTiles * kTile, kN = kHigh ? 16 : 8;
  __shared__ float sums[kWarps][kN][kOutputs];
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int first = static_cast<int>(blockIdx.x) * kOutputs;
  const auto row_of = [&](int output) {  // those beyond are not written
    return weight + static_cast<int64_t>(min(first + output, O - 1)) * row_bytes;
  };
  const auto word_of = [&](int output, int group) {
    return reinterpret_cast<const uint32_t*>(row_of(output) + I / 2)[group];
  };
  const T *const low = x + static_cast<int64_t>(g) * I, *const high = low + int64_t{8} * I;
  float c[kTiles][4] = {};
  for (int base = warp * kOfWarp; base < I; base += kUnroll * kStep) {
    uint4 w[kUnroll][kTiles];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int k = base + u * kStep + t * kElements;
        w[u][tile] = load_once(row_of(tile * kTile + g) + (Format::kGroups ? k / 2 : k), k < I);
      }
    __syncwarp();  // all loads before the first is waited for
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int from = base + u * kStep, k = from + t * kElements;
      if (from >= I) break;
      float part[kTiles][4] = {};
      uint32_t zero[kTiles] = {};
      if constexpr (Format::kGroups)
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
          zero[tile] = packed::zero_in(word_of(tile * kTile + g, from / kOfWarp));
#pragma unroll
      for (int e = 0; e < kElements / 8; ++e) {
        const uint4 a = k < I && g < N ? load_raw(low + k + 8 * e) : kNothing;
        const uint4 b = kHigh && k < I && g + 8 < N ? load_raw(high + k + 8 * e) : kNothing;
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          uint32_t pairs[4];
          Format::template unpack<T>(w[u][tile], e, zero[tile], pairs);
          float(&to)[4] = Format::kGroups ? part[tile] : c[tile];
          multiply_add<T>(to, {a.x, b.x, a.y, b.y}, pairs[0], pairs[1]);
          multiply_add<T>(to, {a.z, b.z, a.w, b.w}, pairs[2], pairs[3]);
        }
      }
      if constexpr (Format::kGroups)
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const float scale = packed::scale_in(word_of(tile * kTile + 2 * t + i, from / kOfWarp));
            c[tile][i] = fmaf(part[tile][i], scale, c[tile][i]);
            if constexpr (kHigh) c[tile][2 + i] = fmaf(part[tile][2 + i], scale, c[tile][2 + i]);
          }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sums[warp][g][tile * kTile + 2 * t + i] = c[tile][i];
      if constexpr (kHigh) sums[warp][g + 8][tile * kTile + 2 * t + i] = c[tile][2 + i];
    }
  __syncthreads();
  const int n = threadIdx.x / kOutputs, output = threadIdx.x % kOutputs, o = first + output;
  if (n >= N || o >= O) return;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) sum += sums[i][n][output];
  if constexpr (!Format::kGroups) sum *= *reinterpret_cast<const float*>(row_of(output) + I);
  if (bias) sum += to_float(bias[o]);
  y[static_cast<int64_t>(n) * O + o] = from_float<T>(sum);
}

template <class T, class Format, int kWarps, int kUnroll, int kTiles>
cudaError_t multiply(const QuantizedLinear& c, cudaStream_t stream) {
  static_assert(kWarps * 32 >= packed::kMostRows * kTiles * kTile);
  constexpr int kOutputs = kTiles * kTile;
  const auto blocks = static_cast<unsigned>((c.O + kOutputs - 1) / kOutputs);
  const int64_t row_bytes = c.int4 ? packed::int4_row(c.I) : packed::int8_row(c.I);
  return start(c.N > 8 ? quantized_kernel<T, Format, kWarps, kUnroll, kTiles, true>
                       : quantized_kernel<T, Format, kWarps, kUnroll, kTiles, false>,
               blocks, kWarps * 32, 0, stream, static_cast<const T*>(c.x),
               static_cast<const unsigned char*>(c.weight), row_bytes, static_cast<const T*>(c.bias),
               static_cast<T*>(c.y), static_cast<int>(c.N), static_cast<int>(c.I), static_cast<int>(c.O));
}

template <class T, class Format, int kTiles>
cudaError_t multiply(const QuantizedLinear& c, cudaStream_t stream) {
  const int64_t steps = (c.I + 4 * Format::kElements - 1) / (4 * Format::kElements);  // of a warp
  return steps <= 8    ? multiply<T, Format, 8, 1, kTiles>(c, stream)
         : steps <= 16 ? multiply<T, Format, 8, 2, kTiles>(c, stream)
         : steps <= 32 ? multiply<T, Format, 8, 4, kTiles>(c, stream)
                       : multiply<T, Format, 16, 4, kTiles>(c, stream);
}

template <class T, class Format>
cudaError_t multiply(const QuantizedLinear& c, cudaStream_t stream) {
  constexpr int64_t kManyOutputs =
      4096;  // more than 132 multiprocessors of blocks are left with two tiles each
  return c.O >= kManyOutputs ? multiply<T, Format, 2>(c, stream) : multiply<T, Format, 1>(c, stream);
}

/// A thread takes 8 inputs of an output.
template <class T, bool kInt4>
__global__ void dequantize_kernel(const unsigned char* weight, int64_t row_bytes, T* out, int I) {
  const int k = (static_cast<int>(blockIdx.x) * blockDim.x + threadIdx.x) * 8;
  if (k >= I) return;
  const int64_t o = blockIdx.y + static_cast<int64_t>(blockIdx.z) * gridDim.y;
  const unsigned char* const row = weight + o * row_bytes;
  float values[8];
  if constexpr (kInt4) {
    const uint32_t codes = reinterpret_cast<const uint32_t*>(row)[k / 8];
    const uint32_t word = reinterpret_cast<const uint32_t*>(row + I / 2)[k / packed::kGroup];
    const auto zero = static_cast<int>(packed::zero_in(word));
#pragma unroll
    for (int i = 0; i < 8; ++i)
      values[i] = static_cast<float>(static_cast<int>(codes >> packed::shift_of(i) & 15) - zero) *
                  packed::scale_in(word);
  } else {
    const float scale = *reinterpret_cast<const float*>(row + I);
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = static_cast<float>(static_cast<signed char>(row[k + i])) * scale;
  }
  store(out + o * I + k, values);
}

}  // namespace

cudaError_t launch(const QuantizedLinear& c, cudaStream_t stream) {
  if (c.N == 0 || c.O == 0) return cudaSuccess;
  if (c.N > packed::kMostRows || c.I % packed::kMultiple != 0 || c.I > INT_MAX / 2 || c.O > INT_MAX / 2 ||
      !aligned(c.x) || !aligned(c.weight))
    return cudaErrorInvalidValue;
  return with_type(c.dtype, [&]<class T>(T) {
    if constexpr (std::is_same_v<T, float>)
      return cudaErrorInvalidValue;
    else
      return c.int4 ? multiply<T, Int4>(c, stream) : multiply<T, Int8>(c, stream);
  });
}

cudaError_t launch(const Dequantize& c, cudaStream_t stream) {
  if (c.O == 0 || c.I == 0) return cudaSuccess;
  if (c.I % packed::kMultiple != 0 || c.I > INT_MAX / 2 || c.O > INT_MAX / 2) return cudaErrorInvalidValue;
  constexpr int kThreads = 128;
  constexpr int64_t kRows = 32;  // a row of the grid, so that any number of outputs fits
  const auto blocks = static_cast<unsigned>((c.I / 8 + kThreads - 1) / kThreads);
  const int64_t row_bytes = c.int4 ? packed::int4_row(c.I) : packed::int8_row(c.I);
  const auto* weight = static_cast<const unsigned char*>(c.weight);
  return with_type(c.dtype, [&]<class T>(T) {
    const auto some = [&](int64_t first, int64_t count, int64_t y) {
      const dim3 grid(blocks, static_cast<unsigned>(y), static_cast<unsigned>(count / y));
      return start(c.int4 ? dequantize_kernel<T, true> : dequantize_kernel<T, false>, grid, kThreads, 0,
                   stream, weight + first * row_bytes, row_bytes, static_cast<T*>(c.out) + first * c.I,
                   static_cast<int>(c.I));
    };
    const int64_t whole = c.O / kRows * kRows;
    auto status = whole > 0 ? some(0, whole, kRows) : cudaSuccess;
    if (status == cudaSuccess && whole < c.O) status = some(whole, c.O - whole, c.O - whole);
    return status;
  });
}

}  // namespace tightloop::ops::cuda
