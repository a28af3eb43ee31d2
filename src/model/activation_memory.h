#pragma once

#include <cstdint>
#include <vector>

#include "model/model_config.h"

namespace tightloop {

/// A micro-batch, and how wide its numbers are.
struct PassShape {
  int64_t rows = 1, length = 1;
  int64_t element = 2;   // bytes of the compute dtype
  bool kernels = true;  // a GPU's, which keep less than torch's passes do
};

/// What a block needs in training, in bytes.
struct BlockMemory {
  double input = 0;     // kept also by a block that is computed again
  double kept = 0;      // for the backward pass
  double apart = 0;     // of the input, what is not among that
  double backward = 0;  // most that is alive in its backward pass: what is still kept, and gradients
};

/// What a model's forward pass leaves on the device for the backward pass, worked out from shapes, operator
/// by operator: what autograd saves for each, which of that is shared, and when it is let go.
struct ActivationMemory {
  double state = 0;              // (B, T, D)
  double before = 0, after = 0;  // kept before the first and after the last block
  std::vector<BlockMemory> blocks{};
};

/// `config` is resolved; each row is one document. Attention is torch's fused one, or, with dropout, our own
/// step by step.
ActivationMemory activation_memory(const ModelConfig& config, const PassShape& shape);

}  // namespace tightloop
