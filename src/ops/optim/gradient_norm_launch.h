#pragma once

#include "ops/launch.h"
#include "ops/tensor_table.h"

namespace tightloop::ops::cuda {

struct NormTable {
  BlockMap map;
  const void* tensors[kTableSize];
  int64_t sizes[kTableSize];
};

/// Writes the sum of squares of each piece to `sums`, one a block.
struct PieceSums {
  Dtype dtype;
  const NormTable* table;
  float* sums;
};
cudaError_t launch(const PieceSums& call, cudaStream_t stream);

/// norm = sqrt of the sum of `count` sums.
struct NormOfSums {
  const float* sums;
  int64_t count;
  float* norm;
};
cudaError_t launch(const NormOfSums& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
