#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "model/activation_memory.h"
#include "model/files/huggingface_layout.h"
#include "model/language_model.h"
#include "model/parts/rotary.h"
#include "ops/attention/attention.h"
#include "ops/norm/residual_norm.h"

namespace tightloop {

/// What the decoder reads of some sources: B sentences of up to S tokens.
struct Memory {
  at::Tensor states_BSD;
  ops::KeyMask mask;  // hides the padding
  /// Keys and values (B, S, 2, H, head size) of every layer of the decoder, where they were made ahead.
  std::vector<at::Tensor> cross{};

  /// Keeps only these sentences, in this order.
  void select_rows(const at::Tensor& rows);
};

/// An encoder-decoder transformer as "Attention is all you need" has it: LayerNorm after or before each part,
/// biases, embeddings times sqrt(D), dropout on embeddings, attention weights, the inside of the feed-forward
/// and every residual branch. S source, T target positions.
class Seq2Seq : public Model {
 public:
  Seq2Seq(const ModelConfig& config, Seed seed);

  /// source (B, S) int64, padded with any id; lengths (B) int64 on the same device: the tokens of each row.
  /// Nothing is read back, and shapes depend on B and S alone.
  Memory encode(const at::Tensor& source_BS, const at::Tensor& lengths_B, const Pass& pass = {});
  /// Makes keys and values of the memory once, for many calls of decode().
  void remember(Memory& memory) const;
  /// States that the head reads, (R, T, D), for targets (R, T). R may be a multiple of the memory's rows:
  /// rows i * R / B onwards then all translate source i (beams). With pass.paged each row is the next token
  /// of a target whose keys and values lie in pages. Padding behind a target's tokens changes nothing before
  /// it.
  at::Tensor decode(const at::Tensor& target_RT, const Memory& memory, const Pass& pass = {});

  Head head() const override { return {head_, config_.softcap}; }

 private:
  struct Norm {
    at::Tensor weight, bias;
  };
  struct Linear {
    at::Tensor weight, bias;
  };
  /// A layer of the encoder, or of the decoder, which also attends across.
  struct Block {
    Norm attention_norm;
    Linear qkv, out;
    Norm cross_norm;
    Linear cross_q, cross_kv, cross_out;
    Norm ffn_norm;
    Linear up, down;
  };
  class Dropouts;  // where a pass drops, one place after the other

  Block add_block(const std::string& prefix, bool decoder);
  Norm add_norm(const std::string& name);
  Linear add_linear(const std::string& name, int64_t out, int64_t in, int64_t parts = 1);

  at::Tensor normed(const at::Tensor& x, const Norm& norm) const;
  /// The running sum that a stack of blocks starts with, and what its first part reads: with norms before
  /// each part the sum normed, else itself.
  ops::NormedSum begin(const at::Tensor& x, const std::vector<Block>& blocks, const Norm& last) const;
  /// The same after a part, whose last product is `linear`, made something of y. Either the norm is the
  /// part's own, or it is that of the next part.
  ops::NormedSum follow(const ops::NormedSum& x, const at::Tensor& y, const Linear& linear, const Norm& own,
                        const Norm& next, Dropouts& drops) const;
  /// `paged`: where the ids stand, one in each row; null: from the beginning of each row on.
  at::Tensor embed(const at::Tensor& weight, const at::Tensor& ids, const PagedTokens* paged,
                   Dropouts& drops);
  at::Tensor qkv(const Block& block, const at::Tensor& x_BTD,
                 const PagedTokens* paged = nullptr) const;  // (B, T, 3, H, head size)
  /// Self-attention of tokens whose keys and values lie in pages: (R, 1, H, head size).
  at::Tensor next_tokens(const at::Tensor& qkv, const PagedTokens& paged, int64_t layer) const;
  at::Tensor cross_kv(const Block& block, const at::Tensor& states_BSD) const;
  /// The feed-forward up to its last product.
  at::Tensor inner(const Block& block, const at::Tensor& x, Dropouts& drops) const;

  at::Tensor source_embedding_, embedding_, head_;
  std::vector<Block> encoder_, decoder_;
  Norm encoder_norm_, decoder_norm_;  // before each part alone
  Rotary rotary_;
  PositionTables waves_;  // (positions, D), in the compute dtype
};

/// sin and cos of the positions [0, length) as the paper has them, (length, D) in fp32: element 2i is
/// sin(p / 10000^(2i/D)), element 2i + 1 its cos.
at::Tensor sinusoidal_positions(int64_t length, int64_t width);

ActivationMemory seq2seq_activations(const ModelConfig& config, const PassShape& shape);
HuggingFaceLayout seq2seq_layout();

}  // namespace tightloop
