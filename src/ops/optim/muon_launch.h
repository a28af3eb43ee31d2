#pragma once

#include "ops/launch.h"
#include "ops/tensor_table.h"

namespace tightloop::ops::cuda {

/// Up to kTableSize matrices of one shape, in lists as deep as `matrices`; see ops::MuonTensors. Stacks begin
/// at the first of them. Scalars are on the device.
struct MuonGradients {
  const void* at[kTableSize];
};

/// From gradients to x, which becomes 0 where the update is skipped.
struct MuonStart {
  Dtype gradients, x;
  const MuonGradients* table;
  int matrices, rows, columns;  // less than 2^30 elements each
  float* momentum;
  void* to;  // x
  const float *divisor, *mu, *skip;
};
cudaError_t launch(const MuonStart& call, cudaStream_t stream);

/// `values` entries may be null: nothing to publish. Others are of x's dtype.
struct MuonWeights {
  float* masters[kTableSize];
  void* values[kTableSize];
};

/// From x and the scale of each row or column to the weights.
struct MuonEnd {
  Dtype x;
  const MuonWeights* table;
  int matrices, rows, columns;
  const void* from;  // x
  const float* scale;
  bool by_row;
  float lr, decay;
  const float *lr_scale, *decay_scale, *skip;
};
cudaError_t launch(const MuonEnd& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
