#pragma once

#include <cstdint>
#include <vector>

#include "model/activation_memory.h"

namespace tightloop {

/// The operators of a block in the order of the forward pass, as its backward pass meets them.
class Tape {
 public:
  /// `kept` for backward, until the operator's own has run; `made` by it: the gradient of its input;
  /// `working`: besides, while it runs.
  void add(double kept, double made, double working = 0) { steps_.push_back({kept, made, working, false}); }
  /// The first operator of a branch: its gradient is added to that of the residual stream.
  void branch(double kept, double made) { steps_.push_back({kept, made, 0, true}); }

  /// `stream`: gradients that are alive all the time, that of the residual stream at least.
  BlockMemory run(double input, double stream) const;

 private:
  struct Step {
    double kept, made, working;
    bool branches;
  };
  std::vector<Step> steps_;
};

/// Sizes in bytes of what a block's operators make.
struct BlockSizes {
  BlockSizes(const ModelConfig& config, const PassShape& shape)
      : config(config),
        shape(shape),
        N(static_cast<double>(shape.rows * shape.length)),
        e(static_cast<double>(shape.element)),
        D(wide(config.width)),
        F(wide(config.ffn)),
        q(wide(config.heads * config.head_size)),
        kv(wide(config.kv_heads * config.head_size)),
        qkv(q + 2 * kv) {}
  double wide(int64_t columns) const { return N * e * static_cast<double>(columns); }
  double floats(int64_t columns) const { return N * 4 * static_cast<double>(columns); }

  const ModelConfig& config;
  const PassShape& shape;
  double N, e;
  double D, F, q, kv, qkv;
};

/// Fused attention keeps its inputs, its output and the logarithm of each row's sum. `inputs`: what holds
/// queries, keys and values. Backward adds queries' gradients up in fp32, and keys' by query head.
void fused_attention(Tape& tape, const BlockSizes& s, double inputs, bool masked);
/// With dropout: copies of queries, keys and values by head, the weights before and after dropout, and the
/// result in the order of tokens.
void dropped_attention(Tape& tape, const BlockSizes& s);
/// Dropout of a branch's result, where there is any.
void end_branch(Tape& tape, const BlockSizes& s);
/// Of a block that begins with the sum of the stream and what the block before made, which is what it keeps.
/// The first one has the stream alone.
BlockMemory begun_with_a_sum(const Tape& tape, const BlockSizes& s, int64_t layer);

}  // namespace tightloop
