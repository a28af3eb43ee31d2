#pragma once

#include "ops/launch.h"

namespace tightloop::ops::cuda {

constexpr int kMostFewRows = 16;

/// What the kernel multiplies: rows as they are, or rows that each block makes of them first. These are of 16
/// bits, up to kMostMadeRows, and lie in shared memory: kMostMadeBytes.
enum class FewRowsInput { kGiven, kNormed, kSwiglu };
constexpr int kMostMadeRows = 4, kMostMadeBytes = 40 << 10;

/// rms_norm(x + branch) * weight, the weight in fp32 or in the rows' dtype. Branch and weight may be null;
/// where there is a branch, sum (N, I) receives x + branch.
struct FewRowsNorm {
  const void *branch, *weight;
  void* sum;
  bool float_weight;
  float eps;
};

/// y (N, O) = x (N, I) times the transposed weight (O, I) + bias (O). All dense and aligned to 16 bytes, as
/// are the rows: I is a multiple of 8, or of 4 in fp32. N up to kMostFewRows.
struct FewRows {
  Dtype dtype;
  const void* x;  // for kSwiglu (N, 2 I): gate, then up
  const void* weight;
  const void* bias;  // null: none
  void* y;
  int64_t N, I, O;
  FewRowsInput input = FewRowsInput::kGiven;
  FewRowsNorm norm{};
};

cudaError_t launch(const FewRows& call, cudaStream_t stream);

}  // namespace tightloop::ops::cuda
