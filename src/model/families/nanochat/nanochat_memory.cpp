#include "model/families/nanochat/nanochat.h"
#include "model/parts/activation_tape.h"

namespace tightloop {

namespace {

BlockMemory nanochat_block(const BlockSizes& s, int64_t layer) {
  const auto& c = s.config;
  const bool values = has_value_embedding(c, layer);
  const bool windowed = c.window(layer) + 1 < s.shape.length;
  Tape tape;
  tape.add(s.D, s.D, s.D);  // scales of x and of x0, which is kept once for all blocks
  tape.branch(s.D + s.floats(1), s.D);
  tape.add(s.D, s.D);      // qkv
  tape.add(s.qkv, s.qkv);  // norms of queries and keys, and rotation
  if (values) tape.add(s.kv + s.wide(kValueGateChannels + 2 * c.kv_heads), s.qkv, 2 * s.kv);
  fused_attention(tape, s, s.q + s.kv + (values ? s.kv : 0), windowed);
  tape.add(0, s.q);  // out
  tape.branch(s.D + s.floats(1), s.D);
  tape.add(s.D, s.D);             // up
  tape.add(s.F, s.F);             // ReLU: its result, which the square keeps too
  tape.add(0, s.F, 2 * s.F);      // square
  tape.add(s.F, s.F);             // down
  return tape.run(s.D, 2 * s.D);  // x0's gradient gathers beside the stream's
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
