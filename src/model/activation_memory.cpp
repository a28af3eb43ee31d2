#include "model/activation_memory.h"

#include <algorithm>

namespace tightloop {

namespace {

/// The operators of a block in the order of the forward pass, as its backward pass meets them.
class Tape {
 public:
  /// `kept` for backward, until the operator's own has run; `made` by it: the gradient of its input;
  /// `working`: besides, while it runs.
  void add(double kept, double made, double working = 0) { steps_.push_back({kept, made, working, false}); }
  /// The first operator of a branch: its gradient is added to that of the residual stream.
  void branch(double kept, double made) { steps_.push_back({kept, made, 0, true}); }

  /// `stream`: gradients that are alive all the time, that of the residual stream at least.
  BlockMemory run(double input, double stream) const {
    BlockMemory memory{.input = input};
    for (const Step& step : steps_) memory.kept += step.kept;
    double alive = memory.kept, flowing = 0;  // what enters a branch's end is the stream's gradient itself
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      memory.backward = std::max(memory.backward, alive + stream + flowing + step->made + step->working);
      alive -= step->kept;
      flowing = step->branches ? 0 : step->made;
    }
    return memory;
  }

 private:
  struct Step {
    double kept, made, working;
    bool branches;
  };
  std::vector<Step> steps_;
};

/// Sizes in bytes of what a family's operators make.
struct Sizes {
  Sizes(const ModelConfig& config, const PassShape& shape)
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

// Fused attention keeps its inputs, its output and the logarithm of each row's sum. `inputs`: what holds
// queries, keys and values. Backward adds queries' gradients up in fp32, and keys' by query head.
void fused_attention(Tape& tape, const Sizes& s, double inputs, bool masked) {
  const double mask =
      masked ? s.e * static_cast<double>(s.shape.length) * static_cast<double>(s.shape.length) : 0;
  const double sums = s.e < 4 ? 4 / s.e * s.q : 0;
  const double by_head = s.config.heads != s.config.kv_heads ? 2 * s.q : 0;
  tape.add(inputs + s.q + s.floats(s.config.heads) + mask, s.qkv, sums + by_head);
}

// With dropout: copies of queries, keys and values by head, the weights before and after dropout, and the
// result in the order of tokens.
void dropped_attention(Tape& tape, const Sizes& s) {
  const double square = static_cast<double>(s.shape.length) * static_cast<double>(s.shape.length);
  const double weights = s.e * static_cast<double>(s.shape.rows * s.config.heads) * square;
  tape.add(2 * s.q, s.qkv);
  tape.add(square, weights);
  tape.add(weights, weights);
  tape.add(0, weights);
  tape.add(weights + s.q, weights + s.q);
  tape.add(s.q, s.q);
}

// q, k and v are parts of one product, whose gradient is put together from theirs.
void split(Tape& tape, const Sizes& s) { tape.add(0, s.qkv); }

void end_branch(Tape& tape, const Sizes& s) {
  if (s.config.dropout > 0) tape.add(0, s.D);
}

/// Of a block that begins with the sum of the stream and what the block before made, which is what it keeps.
/// The first one has the stream alone.
BlockMemory begun_with_a_sum(const Tape& tape, const Sizes& s, int64_t layer) {
  auto memory = tape.run(layer == 0 ? s.D : 2 * s.D, s.D);
  if (layer > 0) memory.apart = memory.input;
  return memory;
}

BlockMemory gpt2_block(const Sizes& s, int64_t layer) {
  Tape tape;
  tape.branch(s.D + s.floats(2), s.D);  // LayerNorm: its input, means and scales
  tape.add(s.D, s.D);                   // qkv
  split(tape, s);
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

void experts(Tape& tape, const Sizes& s) {
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

BlockMemory llama_block(const Sizes& s, int64_t layer) {
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
    experts(tape, s);
  } else {
    tape.add(s.D, s.D);          // gate and up
    tape.add(2 * s.F, 2 * s.F);  // SwiGLU
    tape.add(s.F, s.F);          // down
  }
  return begun_with_a_sum(tape, s, layer);
}

BlockMemory nanochat_block(const Sizes& s, int64_t layer) {
  const auto& c = s.config;
  const bool values = c.has_value_embedding(layer);
  const bool windowed = c.window(layer) + 1 < s.shape.length;
  Tape tape;
  tape.add(s.D, s.D, s.D);  // scales of x and of x0, which is kept once for all blocks
  tape.branch(s.D + s.floats(1), s.D);
  tape.add(s.D, s.D);      // qkv
  tape.add(s.qkv, s.qkv);  // norms of queries and keys, and rotation
  if (values) tape.add(s.kv + s.wide(ModelConfig::kValueGateChannels + 2 * c.kv_heads), s.qkv, 2 * s.kv);
  fused_attention(tape, s, s.q + s.kv + (values ? s.kv : 0), windowed);
  tape.add(0, s.q);  // out
  tape.branch(s.D + s.floats(1), s.D);
  tape.add(s.D, s.D);             // up
  tape.add(s.F, s.F);             // ReLU: its result, which the square keeps too
  tape.add(0, s.F, 2 * s.F);      // square
  tape.add(s.F, s.F);             // down
  return tape.run(s.D, 2 * s.D);  // x0's gradient gathers beside the stream's
}

// ReLU's result is what the last product reads; GELU and dropout make more.
void seq2seq_ffn(Tape& tape, const Sizes& s) {
  tape.branch(s.D + s.floats(2), s.D);
  tape.add(s.D, s.D);  // up
  tape.add(s.F, s.F);  // the activation
  if (s.config.dropout > 0) tape.add(0, s.F);
  tape.add(s.config.activation == "gelu" || s.config.dropout > 0 ? s.F : 0, s.F);  // down
  end_branch(tape, s);
}

// Both sides are as long as the rows. Norms before or after each part keep the same.
BlockMemory seq2seq_block(const Sizes& s, bool decoder) {
  Tape tape;
  const auto attention = [&] {
    s.config.dropout > 0 ? dropped_attention(tape, s) : fused_attention(tape, s, s.qkv, false);
    tape.add(0, s.q);
    end_branch(tape, s);
  };
  tape.branch(s.D + s.floats(2), s.D);
  tape.add(s.D, s.D);  // qkv
  split(tape, s);
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

ActivationMemory activation_memory(const ModelConfig& config, const PassShape& shape) {
  const Sizes s(config, shape);
  ActivationMemory memory{.state = s.D, .before = 0, .after = 0, .blocks = {}};
  if (config.translates()) {
    memory.before = memory.after = s.D + s.floats(2);  // the last norms of encoder and decoder
    memory.blocks.assign(config.encoder_layers, seq2seq_block(s, /*decoder=*/false));
    memory.blocks.insert(memory.blocks.end(), config.layers, seq2seq_block(s, /*decoder=*/true));
    return memory;
  }
  const bool gpt2 = config.family == "gpt2", nanochat = config.family == "nanochat";
  memory.after = s.D + s.floats(gpt2 ? 2 : 1);  // the last norm
  if (nanochat)                                 // norm of the embedding, smear, x0
    memory.before = 3 * s.D + s.floats(1) + s.wide(ModelConfig::kSmearChannels + 3);
  for (int64_t layer = 0; layer < config.layers; ++layer)
    memory.blocks.push_back(gpt2       ? gpt2_block(s, layer)
                            : nanochat ? nanochat_block(s, layer)
                                       : llama_block(s, layer));
  return memory;
}

}  // namespace tightloop
