#pragma once

#include <vector>

#include "model/language_model.h"

namespace tightloop {

/// Pre-norm decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.
class Llama : public LanguageModel {
 public:
  Llama(const ModelConfig& config, uint64_t seed);
  using LanguageModel::forward;
  Forward forward(const at::Tensor& ids_BT, const Pass& pass) override;
  Head head() const override { return {head_, config_.softcap}; }

 private:
  struct Block {
    at::Tensor attention_norm, qkv, out, ffn_norm, gate_up, down;
  };
  at::Tensor attention(const Block& block, const at::Tensor& x_BTD, int64_t layer, KvCache* cache) const;
  at::Tensor feed_forward(const Block& block, const at::Tensor& x_BTD) const;
  void extend_rope(int64_t length, at::Device device);

  at::Tensor embedding_, final_norm_, head_;
  std::vector<Block> blocks_;
  at::Tensor cos_, sin_;  // (longest length seen, head size / 2)
};

}  // namespace tightloop
