#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

/// y (N, O) = x (N, I) times a packed weight (ops/quantized_weight.h) + bias (O). All dense and aligned to 16
/// bytes; in 16 bits, N up to packed::kMostRows.
struct QuantizedLinear {
  Dtype dtype;
  bool int4;
  const void* x;
  const void* weight;
  const void* bias;  // null: none
  void* y;
  int64_t N, I, O;
};

/// weights (O, I) of a packed weight, rounded to the dtype.
struct Dequantize {
  Dtype dtype;
  bool int4;
  const void* weight;
  void* out;
  int64_t I, O;
};

cudaError_t launch(const QuantizedLinear& call, cudaStream_t stream);
cudaError_t launch(const Dequantize& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
