#include "model/families/gpt2/gpt2.h"
#include "model/parts/activation_tape.h"

namespace tightloop {

namespace {

BlockMemory gpt2_block(const BlockSizes& s, int64_t layer) {
  Tape tape;
  tape.branch(s.D + s.floats(2), s.D);  // LayerNorm: its input, means and scales
  tape.add(s.D, s.D);                   // qkv
  tape.add(0, s.qkv);  // q, k and v are parts of one product, whose gradient is put together from theirs
  s.config.dropout > 0 ? dropped_attention(tape, s) : fused_attention(tape, s, s.qkv, false);
  tape.add(0, s.q);  // out; its input is kept by attention
  end_branch(tape, s);
  tape.branch(s.D + s.floats(2), s.D);
  tape.add(s.D, s.D);  // up
  tape.add(s.F, s.F);  // GELU
  tape.add(s.F, s.F);  // down
  end_branch(tape, s);
  return begun_with_a_sum(tape, s, layer);
}

}  // namespace

ActivationMemory gpt2_activations(const ModelConfig& config, const PassShape& shape) {
  const BlockSizes s(config, shape);
  ActivationMemory memory{.state = s.D, .after = s.D + s.floats(2)};  // the last norm
  for (int64_t layer = 0; layer < config.layers; ++layer) memory.blocks.push_back(gpt2_block(s, layer));
  return memory;
}

}  // namespace tightloop
