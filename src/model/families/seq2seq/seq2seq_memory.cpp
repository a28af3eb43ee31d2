#include "model/families/seq2seq/seq2seq.h"
#include "model/parts/activation_tape.h"

namespace tightloop {

namespace {

// ReLU's result is what the last product reads; GELU and dropout make more.
void seq2seq_ffn(Tape& tape, const BlockSizes& s) {
  tape.branch(s.D + s.floats(2), s.D);
  tape.add(s.D, s.D);  // up
  tape.add(s.F, s.F);  // the activation
  if (s.config.dropout > 0) tape.add(0, s.F);
  tape.add(s.config.activation == Activation::kGelu || s.config.dropout > 0 ? s.F : 0, s.F);  // down
  end_branch(tape, s);
}

// Both sides are as long as the rows. Norms before or after each part keep the same.
BlockMemory seq2seq_block(const BlockSizes& s, bool decoder) {
  Tape tape;
  const auto attention = [&] {
    s.config.dropout > 0 ? dropped_attention(tape, s) : fused_attention(tape, s, s.qkv, false);
    tape.add(0, s.q);
    end_branch(tape, s);
  };
  tape.branch(s.D + s.floats(2), s.D);
  tape.add(s.D, s.D);  // qkv
  tape.add(0, s.qkv);
  attention();
  if (decoder) {
    tape.branch(s.D + s.floats(2), s.D);
    tape.add(s.D, s.D);  // queries; keys and values come from the encoder's states
    tape.add(0, s.qkv);
    attention();
  }
  seq2seq_ffn(tape, s);
  return tape.run(s.D, decoder ? 2 * s.D : s.D);  // the encoder's states gather a gradient of their own
}

}  // namespace

ActivationMemory seq2seq_activations(const ModelConfig& config, const PassShape& shape) {
  const BlockSizes s(config, shape);
  ActivationMemory memory{.state = s.D};
  memory.before = memory.after = s.D + s.floats(2);  // the last norms of encoder and decoder
  memory.blocks.assign(config.encoder_layers, seq2seq_block(s, /*decoder=*/false));
  memory.blocks.insert(memory.blocks.end(), config.layers, seq2seq_block(s, /*decoder=*/true));
  return memory;
}

}  // namespace tightloop
