#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// logits (rows, V), each row dense and `stride` elements after the one before. Pointers that may be null:
/// gradient (as the logits, which it may overwrite), correct (rows), scale (one number).
struct CrossEntropyRows {
  Dtype dtype;
  const void* logits;
  const int64_t* targets;
  float* losses;
  void* gradient;
  bool* correct;
  const float* scale;
  int64_t rows, V, stride, gradient_stride;
  int64_t ignored;  // a target that does not count
  float softcap, label_smoothing, z_loss;
};
cudaError_t launch(const CrossEntropyRows& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
