#pragma once

#include "ops/launch.h"
#include "ops/tensor_table.h"

namespace tightloop::ops::cuda {

/// Up to kTableSize tensors; see ops::AdamwTensors. `values` entries may be null: nothing to publish.
struct AdamwTable {
  BlockMap map;
  float *masters[kTableSize], *first[kTableSize], *second[kTableSize];
  const void* gradients[kTableSize];
  void* values[kTableSize];
  int64_t sizes[kTableSize];
  float rate[kTableSize], decay[kTableSize];
};

struct Adamw {
  Dtype gradients, values;
  const AdamwTable* table;
  float beta1, beta2, eps;
  const float* control;  // ops::AdamwControl, on the device
};
cudaError_t launch(const Adamw& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
