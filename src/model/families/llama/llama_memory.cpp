#include "model/families/llama/llama.h"
#include "model/parts/activation_tape.h"

namespace tightloop {

namespace {

void routed_experts(Tape& tape, const BlockSizes& s) {
  const int64_t E = s.config.experts, P = s.config.experts_per_token;
  const auto choices = static_cast<double>(P);
  const double rows = choices * s.D, inner = choices * s.wide(s.config.expert_ffn);
  tape.add(s.D + s.floats(E + 4 * P + 1), s.D);         // router: scores, choices, weights and their sum
  tape.add(s.floats(2 * P), s.D, rows);                 // rows in the order of experts
  tape.add(rows, rows);                                 // gate and up
  tape.add(2 * inner, 2 * inner);                       // SwiGLU
  tape.add(inner, inner);                               // down
  tape.add(s.floats(2 * P), rows);                      // back in the order of tokens
  tape.add(rows, rows, (8 * choices + 4) / s.e * s.D);  // weighted sum, in fp32
}

BlockMemory llama_block(const BlockSizes& s, int64_t layer) {
  const bool normed = s.config.has_qk_norm(), dropping = s.config.dropout > 0;
  Tape tape;
  tape.branch(s.D + s.floats(1), s.D);  // RMSNorm: its input and scales
  tape.add(s.D, s.D);                   // qkv
  tape.add(normed ? s.qkv : 0, s.qkv);  // norms keep the product they are taken of, rotation keeps nothing
  // Values are a part of the product, which keeps the whole of it.
  if (dropping)
    dropped_attention(tape, s);
  else
    fused_attention(tape, s, s.q + s.kv + (normed ? 0 : s.qkv), false);
  tape.add(0, s.q);  // out
  end_branch(tape, s);
  tape.branch(s.D + s.floats(1), s.D);
  if (s.config.has_experts()) {
    routed_experts(tape, s);
  } else {
    tape.add(s.D, s.D);          // gate and up
    tape.add(2 * s.F, 2 * s.F);  // SwiGLU
    tape.add(s.F, s.F);          // down
  }
  return begun_with_a_sum(tape, s, layer);
}

}  // namespace

ActivationMemory llama_activations(const ModelConfig& config, const PassShape& shape) {
  const BlockSizes s(config, shape);
  ActivationMemory memory{.state = s.D, .after = s.D + s.floats(1)};  // the last norm
  for (int64_t layer = 0; layer < config.layers; ++layer) memory.blocks.push_back(llama_block(s, layer));
  return memory;
}

}  // namespace tightloop
