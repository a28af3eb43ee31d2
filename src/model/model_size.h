#pragma once

#include <cstdint>

#include "model/model_config.h"

namespace tightloop {

/// Parameters by what they are for: the sum of the shapes that the family's own constructor makes, by role.
struct ModelSize {
  int64_t total = 0;
  int64_t embedding = 0;  // in tables that are looked up: tokens, positions, value embeddings
  int64_t active = 0;     // met by a token: all but the experts that it does not visit
  int64_t matmul = 0;     // multiplied with a token's state, the head included
  int64_t blocks = 0;     // all but embeddings of tokens and positions, and a head of its own
  int64_t head = 0;       // in the head, whether it is an embedding too or not
};
/// `config` is resolved. Nothing is allocated: less than a millisecond for a billion parameters.
ModelSize model_size(const ModelConfig& config);

/// Forward and backward: 6 for each multiplied parameter, and 12 times the attention's width for each
/// position that a layer looks at (its window, at most `context`; nothing is taken off for the causal half).
double flops_per_token(const ModelConfig& config, int64_t context);

}  // namespace tightloop
