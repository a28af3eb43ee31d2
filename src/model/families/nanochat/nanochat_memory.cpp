#include "model/families/nanochat/nanochat.h"
#include "model/parts/activation_tape.h"

namespace tightloop {

namespace {

BlockMemory nanochat_block(const BlockSizes& s, int64_t layer) {
  const auto& c = s.config;
  const bool values = has_value_embedding(c, layer);
  const bool windowed = c.window(layer) + 1 < s.shape.length;
  Tape tape;
  // Scales of x and of x0, which is kept once for all blocks; without a kernel x before its scale is kept,
  // too.
  tape.add(s.shape.kernels ? 0 : s.D, s.D, s.D);
  tape.branch(s.D + s.floats(1), s.D);
  tape.add(s.D, s.D);      // qkv
  tape.add(s.qkv, s.qkv);  // norms of queries and keys, and rotation
  if (values) tape.add(s.kv + s.wide(kValueGateChannels + 2 * c.kv_heads), s.qkv, 2 * s.kv);
  fused_attention(tape, s, s.q + s.kv + (values ? s.kv : 0), windowed);
  tape.add(0, s.q);  // out
  tape.branch(s.D + s.floats(1), s.D);
  tape.add(s.D, s.D);                 // up
  tape.add(s.F, s.F);                 // ReLU squared, whose slope comes from its result
  tape.add(0, s.F);                   // down, which keeps the same
  return tape.run(2 * s.D, 2 * s.D);  // the stream and its branch; x0's gradient gathers beside the stream's
}

}  // namespace

ActivationMemory nanochat_activations(const ModelConfig& config, const PassShape& shape) {
  const BlockSizes s(config, shape);
  ActivationMemory memory{.state = s.D,
                          // Norm of the embedding, smear, x0; the last norm.
                          .before = 3 * s.D + s.floats(1) + s.wide(kSmearChannels + 3),
                          .after = s.D + s.floats(1)};
  for (int64_t layer = 0; layer < config.layers; ++layer) memory.blocks.push_back(nanochat_block(s, layer));
  return memory;
}

}  // namespace tightloop
