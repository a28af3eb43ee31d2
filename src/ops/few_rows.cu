#include <climits>
#include <type_traits>

#include "ops/few_rows_input.cuh"

namespace tightloop::ops::cuda {

namespace {

// A block has a few rows of the weight, its warps take turns along them, and their sums are added in order.
// How many warps there are depends on the rows' length alone, and what is computed for one row of x does not
// depend on the others.

constexpr uint4 kNothing{0, 0, 0, 0};

/// The warps' sums (kWarps, kN, kOutputs) become rows of y.
template <class T, int kWarps, int kN, int kOutputs>
__device__ inline void finish(const float (&sums)[kWarps][kN][kOutputs], const T* bias, T* y, int first,
                              int N, int O) {
  __syncthreads();
  const int n = threadIdx.x / kOutputs, output = threadIdx.x % kOutputs, o = first + output;
  if (n >= N || o >= O) return;
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp][n][output];
  if (bias) sum += to_float(bias[o]);
  y[static_cast<int64_t>(n) * O + o] = from_float<T>(sum);
}

constexpr int kTileOutputs = 8;

/// By tensor cores, whose factors are x (16 rows, kHigh: more than 8 of them are there) and 8 rows of the
/// weight. A lane loads 8 neighbours of a row, which are four pairs of two products; which pair is which does
/// not matter as long as both factors agree.
template <class T, int kWarps, int kUnroll, bool kHigh, class Input>
__global__ void __launch_bounds__(kWarps * 32)
    few_rows_kernel(const Input input, const T* weight, const T* bias, T* y, int N, int I, int O) {
  constexpr int kStep = kWarps * 32;
  __shared__ float sums[kWarps][kHigh ? 16 : 8][kTileOutputs];
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int first = static_cast<int>(blockIdx.x) * kTileOutputs;
  const T* const row = weight + static_cast<int64_t>(min(first + g, O - 1)) * I;  // beyond: not written
  uint4 w[kUnroll];
  const auto load_weight = [&](int base) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int k = base + u * kStep + t * 8;
      w[u] = load_once(row + k, k < I);
    }
  };
  int base = warp * 32;
  load_weight(base);
  const T* const x = input.rows(N, I);  // meanwhile
  const T *const low = x + static_cast<int64_t>(g) * I, *const high = low + int64_t{8} * I;
  float c[4] = {};
  while (base < I) {
    uint4 a[kUnroll], b[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int k = base + u * kStep + t * 8;
      a[u] = k < I && g < N ? load_raw(low + k) : kNothing;
      b[u] = kHigh && k < I && g + 8 < N ? load_raw(high + k) : kNothing;
    }
    // Without this, and a condition where the loop begins, the compiler waits for one load before it starts
    // the next, to save registers.
    __syncwarp();
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      multiply_add<T>(c, {a[u].x, b[u].x, a[u].y, b[u].y}, w[u].x, w[u].y);
      multiply_add<T>(c, {a[u].z, b[u].z, a[u].w, b[u].w}, w[u].z, w[u].w);
    }
    base += kUnroll * kStep;
    load_weight(base);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sums[warp][g][2 * t + i] = c[i];
    if constexpr (kHigh) sums[warp][g + 8][2 * t + i] = c[2 + i];
  }
  finish(sums, bias, y, first, N, O);
}

constexpr int kWideOutputs = 4;

/// The same in fp32, which tensor cores would round: kN rows of x, a lane has 4 neighbours of each.
template <int kWarps, int kN>
__global__ void __launch_bounds__(kWarps * 32)
    few_wide_rows_kernel(const float* x, const float* weight, const float* bias, float* y, int N, int I,
                         int O) {
  __shared__ float sums[kWarps][kN][kWideOutputs];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first = static_cast<int>(blockIdx.x) * kWideOutputs;
  float all[kN][kWideOutputs] = {};
  for (int k = (warp * 32 + lane) * 4; k < I; k += kWarps * 128) {
    uint4 raw[kWideOutputs];
#pragma unroll
    for (int o = 0; o < kWideOutputs; ++o)
      raw[o] = load_once(weight + static_cast<int64_t>(min(first + o, O - 1)) * I + k, true);
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      if (n >= N) break;
      float values[4];
      load(x + static_cast<int64_t>(n) * I + k, values);
#pragma unroll
      for (int o = 0; o < kWideOutputs; ++o) {
        float w[4];
        unpack<float>(raw[o], w);
#pragma unroll
        for (int i = 0; i < 4; ++i) all[n][o] = fmaf(values[i], w[i], all[n][o]);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int o = 0; o < kWideOutputs; ++o) {
      const float sum = row_sum<32>(all[n][o], nullptr);
      if (lane == 0) sums[warp][n][o] = sum;
    }
  finish(sums, bias, y, first, N, O);
}

unsigned blocks_for(int64_t O, int outputs) { return static_cast<unsigned>((O + outputs - 1) / outputs); }

template <class T, int kWarps, int kUnroll, bool kHigh, class Input>
cudaError_t multiply(const FewRows& c, const Input& input, cudaStream_t stream) {
  const size_t shared = c.input == FewRowsInput::kGiven ? 0 : static_cast<size_t>(c.N * c.I) * sizeof(T);
  return start(few_rows_kernel<T, kWarps, kUnroll, kHigh, Input>, blocks_for(c.O, kTileOutputs), kWarps * 32,
               shared, stream, input, static_cast<const T*>(c.weight), static_cast<const T*>(c.bias),
               static_cast<T*>(c.y), static_cast<int>(c.N), static_cast<int>(c.I), static_cast<int>(c.O));
}

template <class T, int kWarps, int kUnroll, int kThreads>
cudaError_t multiply_normed(const FewRows& c, cudaStream_t stream) {
  const NormedRows<T, kWarps * 32, kThreads> rows{static_cast<const T*>(c.x),
                                                  static_cast<const T*>(c.norm.branch),
                                                  c.norm.weight,
                                                  static_cast<T*>(c.norm.sum),
                                                  c.norm.float_weight,
                                                  c.norm.eps};
  return multiply<T, kWarps, kUnroll, false>(c, rows, stream);
}

template <class T, int kWarps, int kUnroll>
cudaError_t multiply(const FewRows& c, cudaStream_t stream) {
  const auto* const x = static_cast<const T*>(c.x);
  switch (c.input) {
    case FewRowsInput::kGiven:
      return c.N > 8 ? multiply<T, kWarps, kUnroll, true>(c, GivenRows<T>{x}, stream)
                     : multiply<T, kWarps, kUnroll, false>(c, GivenRows<T>{x}, stream);
    case FewRowsInput::kSwiglu:
      return multiply<T, kWarps, kUnroll, false>(c, SwigluRows<T, kWarps * 32>{x}, stream);
    case FewRowsInput::kNormed:
      // Rows as rms_norm.cu divides them (with_rows): a warp's, or long ones.
      if constexpr (kUnroll == 4)
        if (c.I <= 32 * kForwardChunks * kWide<T>) return multiply_normed<T, kWarps, kUnroll, 32>(c, stream);
      if constexpr (kWarps == 16) return multiply_normed<T, kWarps, kUnroll, kLongRowThreads>(c, stream);
  }
  return cudaErrorInvalidValue;
}

template <int kWarps, int kN>
cudaError_t multiply_wide(const FewRows& c, cudaStream_t stream) {
  return start(few_wide_rows_kernel<kWarps, kN>, blocks_for(c.O, kWideOutputs), kWarps * 32, 0, stream,
               static_cast<const float*>(c.x), static_cast<const float*>(c.weight),
               static_cast<const float*>(c.bias), static_cast<float*>(c.y), static_cast<int>(c.N),
               static_cast<int>(c.I), static_cast<int>(c.O));
}

template <int kWarps>
cudaError_t multiply_wide(const FewRows& c, cudaStream_t stream) {
  return c.N == 1   ? multiply_wide<kWarps, 1>(c, stream)
         : c.N <= 4 ? multiply_wide<kWarps, 4>(c, stream)
         : c.N <= 8 ? multiply_wide<kWarps, 8>(c, stream)
                    : multiply_wide<kWarps, 16>(c, stream);
}

}  // namespace

cudaError_t launch(const FewRows& c, cudaStream_t stream) {
  if (c.N == 0 || c.O == 0) return cudaSuccess;
  const bool wide = c.dtype == Dtype::kFloat32, made = c.input != FewRowsInput::kGiven;
  if (c.N > (made ? kMostMadeRows : kMostFewRows) || c.I % (wide ? 4 : 8) != 0 || c.I > INT_MAX / 2 ||
      c.O > INT_MAX / 2 || !aligned(c.x) || !aligned(c.weight))
    return cudaErrorInvalidValue;
  if (made && (wide || c.N * c.I * int64_t{sizeof(uint16_t)} > kMostMadeBytes || !aligned(c.norm.branch) ||
               !aligned(c.norm.weight)))
    return cudaErrorInvalidValue;
  return with_type(c.dtype, [&]<class T>(T) {
    // A block is to have all its loads under way at once: 16 bytes a lane, unrolled up to 8 times.
    if constexpr (std::is_same_v<T, float>)
      return c.I <= 1024 ? multiply_wide<8>(c, stream) : multiply_wide<16>(c, stream);
    else
      return c.I <= 1024   ? multiply<T, 8, 4>(c, stream)
             : c.I <= 2048 ? multiply<T, 16, 4>(c, stream)
                           : multiply<T, 16, 8>(c, stream);
  });
}

}  // namespace tightloop::ops::cuda
