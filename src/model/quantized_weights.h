#pragma once

#include <cstdint>

#include "model/model.h"
#include "ops/quantized_linear.h"

namespace tightloop {

struct QuantizedWeights {
  int64_t matrices = 0, elements = 0, bytes = 0;
};

/// Packs the weights of a model that is only used from now on, and moves them to a device: the matrices of
/// blocks (stacks of experts and their routers stay as they are) and the head, which is in int8 where int4 is
/// asked for, as every token's scores come from it alone. Embeddings stay; a head that is the embedding as well
/// is packed beside it. An error where there is nothing that can be packed.
QuantizedWeights quantize_weights(Model& model, ops::WeightFormat format, at::Device device);

}  // namespace tightloop
