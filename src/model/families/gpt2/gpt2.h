#pragma once

#include <vector>

#include "model/activation_memory.h"
#include "model/files/huggingface_layout.h"
#include "model/language_model.h"
#include "model/parts/attention.h"
#include "ops/norm/normed_sum.h"

namespace tightloop {

/// GPT-2: learned positions, LayerNorm and biases everywhere, GELU, dropout on embeddings, attention and
/// residuals.
class Gpt2 : public LanguageModel {
 public:
  Gpt2(const ModelConfig& config, Seed seed);
  using LanguageModel::forward;
  Forward forward(const at::Tensor& ids_BT, const Pass& pass) override;
  Head head() const override { return {head_, config_.softcap}; }

 private:
  struct Block {
    at::Tensor attention_norm, attention_norm_bias, qkv, qkv_bias, out, out_bias;
    at::Tensor ffn_norm, ffn_norm_bias, up, up_bias, down, down_bias;
  };
  BlockOutputs block(const BlockInputs& in, int64_t layer, AttentionScope& scope) const;
  /// The stream with the branch added, and normed.
  ops::NormedSum begin(const BlockInputs& in, int64_t layer, const at::Tensor& weight, const at::Tensor& bias,
                       const AttentionScope& scope) const;
  at::Tensor embed(const at::Tensor& ids_BT, const at::Tensor& documents_BT,
                   const AttentionScope& scope) const;
  at::Tensor attention(const Block& block, const at::Tensor& x_BTD, int64_t layer,
                       AttentionScope& scope) const;
  /// Without its last bias.
  at::Tensor feed_forward(const Block& block, const at::Tensor& x_BTD) const;

  at::Tensor embedding_, positions_, final_norm_, final_norm_bias_, head_;
  std::vector<Block> blocks_;
};

ActivationMemory gpt2_activations(const ModelConfig& config, const PassShape& shape);
HuggingFaceLayout gpt2_layout();

}  // namespace tightloop
