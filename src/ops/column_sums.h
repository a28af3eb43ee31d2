#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/cpu.h"

namespace tightloop::ops::cpu {

/// Sums over N rows of D elements, `width` of them: body(begin, end, sums) adds up rows [begin, end) in
/// order. A fixed number of rows goes into each partial sum, whatever the threads: the result is the same on
/// 1 core and on 64.
template <class Body>
std::vector<float> column_sums(int64_t N, int64_t D, int64_t width, Body&& body) {
  const int64_t rows = std::max(grain(D), (N + 63) / 64), parts = (N + rows - 1) / rows;
  std::vector<float> partial(parts * width), total(width);
  at::parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part)
      body(part * rows, std::min(N, (part + 1) * rows), partial.data() + part * width);
  });
  for (int64_t part = 0; part < parts; ++part)
    for (int64_t i = 0; i < width; ++i) total[i] += partial[part * width + i];
  return total;
}

}  // namespace tightloop::ops::cpu
