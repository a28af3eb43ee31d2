#pragma once

// Products of small matrices that stay in a CPU's caches, in tiles of 6 x 16 that stay in its registers:
// twelve sums of eight floats, two vectors of b and one of a are AVX2's sixteen registers.

#include <cstdint>
#include <utility>
#include <vector>

#include "ops/cpu.h"

namespace tightloop::ops::cpu {

constexpr int64_t kTileRows = 6, kTileColumns = 2 * kLanes;

/// Element (i, k) is at[i * row + k * column].
struct Strided {
  const float* at;
  int64_t row, column;
};

template <size_t... kIndices, class Body>
inline __attribute__((always_inline)) void unrolled(std::index_sequence<kIndices...>, Body&& body) {
  (body(std::integral_constant<size_t, kIndices>{}), ...);
}

/// c (kRows x 16, rows `step` apart) = or += a (kRows x k) times panel (k x 16, dense).
template <size_t kRows>
void multiply_tile(Strided a, const float* panel, int64_t k, float* c, int64_t step, bool add) {
  constexpr auto kAll = std::make_index_sequence<kRows>{};
  Vec sums[kRows][2] = {};
  const float* rows[kRows];
  unrolled(kAll, [&](auto r) { rows[r] = a.at + static_cast<int64_t>(r) * a.row; });
  for (int64_t i = 0, at = 0; i < k; ++i, at += a.column, panel += kTileColumns) {
    const Vec low = load(panel), high = load(panel + kLanes);
    unrolled(
        kAll, [&](auto r) __attribute__((always_inline)) {
          const Vec factor = broadcast(rows[r][at]);
          sums[r][0] += factor * low, sums[r][1] += factor * high;
        });
  }
  unrolled(
      kAll, [&](auto r) __attribute__((always_inline)) {
        float* const to = c + static_cast<int64_t>(r) * step;
        store(to, add ? load(to) + sums[r][0] : sums[r][0]);
        store(to + kLanes, add ? load(to + kLanes) + sums[r][1] : sums[r][1]);
      });
}

/// The same for 1 to 6 rows.
inline void multiply_tile(int64_t rows, Strided a, const float* panel, int64_t k, float* c, int64_t step,
                          bool add) {
  switch (rows) {
    case 6:
      return multiply_tile<6>(a, panel, k, c, step, add);
    case 5:
      return multiply_tile<5>(a, panel, k, c, step, add);
    case 4:
      return multiply_tile<4>(a, panel, k, c, step, add);
    case 3:
      return multiply_tile<3>(a, panel, k, c, step, add);
    case 2:
      return multiply_tile<2>(a, panel, k, c, step, add);
    default:
      return multiply_tile<1>(a, panel, k, c, step, add);
  }
}

inline int64_t whole_tiles(int64_t columns) {
  return (columns + kTileColumns - 1) / kTileColumns * kTileColumns;
}

/// Floats that start where a vector may.
class Floats {
 public:
  explicit Floats(int64_t count) : vectors_((count + kLanes - 1) / kLanes) {}
  float* data() { return reinterpret_cast<float*>(vectors_.data()); }
  void clear() { std::fill(vectors_.begin(), vectors_.end(), Vec{}); }

 private:
  std::vector<Vec> vectors_;
};

/// The panels of x (n x S, dense, S % 16 == 0) as it is: S / 16 of them, each n x 16.
inline void panels_of_rows(const float* x, int64_t n, int64_t S, float* to) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < S; j += kLanes)
      store(to + j / kTileColumns * kTileColumns * n + i * kTileColumns + j % kTileColumns,
            load(x + i * S + j));
}

/// The panels of x transposed, S x 16 each, with zeros after the last of the n columns.
inline void panels_of_columns(const float* x, int64_t n, int64_t S, float* to) {
  for (int64_t first = 0; first < n; first += kTileColumns, to += S * kTileColumns)
    for (int64_t j = 0; j < kTileColumns; ++j)
      for (int64_t s = 0; s < S; ++s)
        to[s * kTileColumns + j] = first + j < n ? x[(first + j) * S + s] : 0.0f;
}

}  // namespace tightloop::ops::cpu
