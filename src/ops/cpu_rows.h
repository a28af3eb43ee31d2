#pragma once

// Products of a few rows of x with many rows of a weight on a CPU, whose time goes into reading the weight.

#ifdef __FMA__
#include <immintrin.h>
#endif

#include <ATen/Parallel.h>

#include <cmath>
#include <vector>

#include "ops/cpu.h"
#include "ops/cpu_tiles.h"

namespace tightloop::ops::cpu {

/// a * b + c rounded once, where it must not be left to the compiler.
inline Vec fma(Vec a, Vec b, Vec c) {
#ifdef __FMA__
  return std::bit_cast<Vec>(
      _mm256_fmadd_ps(std::bit_cast<__m256>(a), std::bit_cast<__m256>(b), std::bit_cast<__m256>(c)));
#else
  for (int64_t i = 0; i < kLanes; ++i) c[i] = std::fma(a[i], b[i], c[i]);
  return c;
#endif
}

constexpr int64_t kFewRows = 4;  // whose sums stay in registers

/// Rows of x in fp32 with zeros up to whole vectors.
class RowsOfX {
 public:
  template <class T>
  RowsOfX(const T* x, int64_t rows, int64_t I)
      : step_((I + kLanes - 1) / kLanes * kLanes), floats_(rows * step_) {
    floats_.clear();
    for (int64_t n = 0; n < rows; ++n)
      for_vectors(I, [&](int64_t i, auto lanes) { store(at(n) + i, load(x + n * I + i, lanes)); });
  }
  float* at(int64_t n) { return floats_.data() + n * step_; }
  int64_t step() const { return step_; }

 private:
  int64_t step_;
  Floats floats_;
};

/// sums[n][r] = row n of x times row r of a weight, whose vectors are rows[r](i, lanes). A row's sum is the
/// same whatever rows are beside it.
template <int64_t kN, int64_t kRows, class Row>
inline void multiply_rows(const float* x, int64_t step, int64_t I, const Row (&rows)[kRows],
                          float (&sums)[kFewRows][kRows]) {
  constexpr auto kAllN = std::make_index_sequence<kN>{};
  constexpr auto kAllRows = std::make_index_sequence<kRows>{};
  Vec all[kN][kRows] = {};
  const auto take = [&](int64_t i, auto lanes) __attribute__((always_inline)) {
    Vec w[kRows];
    unrolled(
        kAllRows, [&](auto r) __attribute__((always_inline)) { w[r] = rows[r](i, lanes); });
    unrolled(
        kAllN, [&](auto n) __attribute__((always_inline)) {
          const Vec factor = load(x + static_cast<int64_t>(n) * step + i);
          unrolled(
              kAllRows, [&](auto r)
                            __attribute__((always_inline)) { all[n][r] = fma(factor, w[r], all[n][r]); });
        });
  };
  for_vectors(I, take);
  unrolled(kAllN, [&](auto n) { unrolled(kAllRows, [&](auto r) { sums[n][r] = sum(all[n][r]); }); });
}

/// Calls body(n, o, sum) for rows n of x (N of them, any number) and o of the weight (O, I), a few rows of
/// which each thread takes at a time. `row_of(o)(i, lanes)` gives vectors of row o.
template <class RowOf, class Body>
void for_products(RowsOfX& x, int64_t N, int64_t O, int64_t I, const RowOf& row_of, const Body& body) {
  const auto some = [&](auto rows, int64_t o) {
    const auto of = [&]<size_t... kIndices>(std::index_sequence<kIndices...>) {
      const std::decay_t<decltype(row_of(o))> at[]{row_of(o + static_cast<int64_t>(kIndices))...};
      for (int64_t first = 0; first < N; first += kFewRows) {
        float sums[kFewRows][rows()];
        const auto multiply = [&](auto n) { multiply_rows<n(), rows()>(x.at(first), x.step(), I, at, sums); };
        const int64_t count = std::min(kFewRows, N - first);
        if (count == 1) multiply(std::integral_constant<int64_t, 1>{});
        if (count == 2) multiply(std::integral_constant<int64_t, 2>{});
        if (count == 3) multiply(std::integral_constant<int64_t, 3>{});
        if (count == 4) multiply(std::integral_constant<int64_t, 4>{});
        for (int64_t n = 0; n < count; ++n)
          for (int64_t r = 0; r < rows(); ++r) body(first + n, o + r, sums[n][r]);
      }
    };
    of(std::make_index_sequence<rows()>{});
  };
  at::parallel_for(0, O, std::max<int64_t>(8, grain(I)), [&](int64_t begin, int64_t end) {
    int64_t o = begin;
    // As many as leave room for their sums in AVX2's sixteen registers.
    const auto take = [&](auto rows) {
      for (; o + rows() <= end; o += rows()) some(rows, o);
    };
    if (N == 1) take(std::integral_constant<int64_t, 8>{});
    if (N <= 2) take(std::integral_constant<int64_t, 4>{});
    take(std::integral_constant<int64_t, 2>{});
    take(std::integral_constant<int64_t, 1>{});
  });
}

}  // namespace tightloop::ops::cpu
