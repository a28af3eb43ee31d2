#pragma once

#include <string>
#include <vector>

#include "model/activation_memory.h"
#include "model/files/huggingface_layout.h"
#include "model/language_model.h"
#include "model/parts/attention.h"
#include "model/parts/experts.h"
#include "model/parts/rotary.h"

namespace tightloop {

/// Pre-norm decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU. The families around it
/// differ little: qwen2 adds biases to queries, keys and values, qwen3 norms queries and keys, qwen3_moe also
/// replaces the feed-forward by experts.
class Llama : public LanguageModel {
 public:
  Llama(const ModelConfig& config, Seed seed);
  using LanguageModel::forward;
  Forward forward(const at::Tensor& ids_BT, const Pass& pass) override;
  Head head() const override { return {head_, config_.softcap}; }

 private:
  struct Block {
    at::Tensor attention_norm, qkv, out, ffn_norm;
    at::Tensor qkv_bias;        // qwen2
    at::Tensor q_norm, k_norm;  // qwen3
    at::Tensor gate_up, down;
    Experts experts;  // qwen3_moe, in place of gate_up and down
  };
  /// `balanced`: whether experts' balance is wanted.
  BlockOutputs block(const BlockInputs& in, int64_t layer, AttentionScope& scope, bool balanced) const;
  // A block's two parts, each from the stream and what is to be added to it to the same.
  BlockInputs attention(const Block& block, const BlockInputs& in, int64_t layer,
                        AttentionScope& scope) const;
  BlockOutputs feed_forward(const Block& block, const BlockInputs& in) const;
  BlockOutputs experts(const Block& block, const BlockInputs& in, bool balanced) const;

  at::Tensor embedding_, final_norm_, head_;
  std::vector<Block> blocks_;
  Rotary rotary_;
};

// For the families around it too.
ActivationMemory llama_activations(const ModelConfig& config, const PassShape& shape);
HuggingFaceLayout llama_layout(const std::string& architecture);

}  // namespace tightloop
