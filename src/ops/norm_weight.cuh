#pragma once

#include "ops/kernel.cuh"

namespace tightloop::ops::cuda {

/// Some values of a norm's weight, in fp32 or in T; ones where there is none.
template <class T, int kVec>
__device__ inline void load_norm_weight(const void* from, bool is_float, int i, float (&weight)[kVec]) {
  if (!from) {
#pragma unroll
    for (int k = 0; k < kVec; ++k) weight[k] = 1;
  } else if (is_float) {
    load(static_cast<const float*>(from) + i, weight);
  } else {
    load(static_cast<const T*>(from) + i, weight);
  }
}

}  // namespace tightloop::ops::cuda
