#pragma once

// Where what is in a packed weight (ops/quantized_linear.h), for the kernels of the CPU and of a GPU. No
// torch here.

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define TIGHTLOOP_ON_BOTH __host__ __device__
#else
#define TIGHTLOOP_ON_BOTH
#endif

namespace tightloop::ops::packed {

constexpr int64_t kMultiple = 32;  // of the inputs
constexpr int64_t kGroup = 128;    // inputs of a scale, int4
constexpr int64_t kScaleRow = 16;  // bytes after a row of int8, of which the first 4 are the scale
constexpr int kMostRows = 16;      // of x, for the kernels that read packed weights

TIGHTLOOP_ON_BOTH constexpr int64_t int8_row(int64_t inputs) { return inputs + kScaleRow; }
TIGHTLOOP_ON_BOTH constexpr int64_t groups_of(int64_t inputs) { return (inputs + kGroup - 1) / kGroup; }
TIGHTLOOP_ON_BOTH constexpr int64_t int4_row(int64_t inputs) {
  return inputs / 2 + (4 * groups_of(inputs) + 15) / 16 * 16;
}

/// A group's word.
TIGHTLOOP_ON_BOTH inline float scale_in(uint32_t word) {
  word &= ~15u;
  float scale;
  memcpy(&scale, &word, sizeof scale);
  return scale;
}
TIGHTLOOP_ON_BOTH inline uint32_t zero_in(uint32_t word) { return word & 15; }

/// Of eight inputs' word: how far input i is shifted.
TIGHTLOOP_ON_BOTH constexpr int shift_of(int i) { return i % 2 * 16 + i / 2 * 4; }

}  // namespace tightloop::ops::packed
