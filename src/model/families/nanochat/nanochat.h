#pragma once

#include <vector>

#include "model/activation_memory.h"
#include "model/language_model.h"
#include "model/parts/attention.h"
#include "model/parts/rotary.h"
#include "ops/pointwise/embedding.h"

namespace tightloop {

constexpr int64_t kSmearChannels = 24, kValueGateChannels = 12;  // the gates read only these

inline bool has_value_embedding(const ModelConfig& config, int64_t layer) {
  return layer % 2 == (config.layers - 1) % 2;
}

/// nanochat's decoder: norms without weights (also after the embedding), rotary positions that turn the other
/// way, normed queries and keys, ReLU squared, sliding windows, scales by layer for the residual stream and
/// for the first state x0, embeddings that join the values of every second layer, a share of the token before
/// mixed into each ("smear"), and the middle layer's state taken off at the end ("backout").
class Nanochat : public LanguageModel {
 public:
  Nanochat(const ModelConfig& config, Seed seed);
  using LanguageModel::forward;
  Forward forward(const at::Tensor& ids_BT, const Pass& pass) override;
  Head head() const override { return {head_, config_.softcap}; }

 private:
  struct Block {
    at::Tensor qkv, out, up, down;
    at::Tensor value_embedding, value_gate;  // where has_value_embedding()
  };
  /// x0 first: the first block gets it as the stream too, and sums of gradients must not depend on
  /// checkpointing. A block hands x0 on, so that its gradient is added up from block to block.
  struct Stream {
    at::Tensor x0, residual, branch{};  // the branch is added to the stream where the next block begins
    std::vector<at::Tensor*> all() { return {&x0, &residual, &branch}; }
    at::Tensor sum() const;
  };
  struct Inputs {
    Stream stream;
    at::Tensor residual_scales, x0_scales;
    std::vector<at::Tensor*> all() {
      return {&stream.x0, &stream.residual, &stream.branch, &residual_scales, &x0_scales};
    }
  };
  Stream block(const Inputs& in, const at::Tensor& ids_BT, const ops::TokenOrder& order, int64_t layer,
               AttentionScope& scope) const;
  at::Tensor norm(const at::Tensor& x) const;
  /// The normed embedding of the token before each; zeros where there is none.
  at::Tensor before(const at::Tensor& x_BTD, const Pass& pass) const;
  at::Tensor smear(const at::Tensor& x_BTD, const Pass& pass) const;
  at::Tensor attention(const Block& block, const at::Tensor& x_BTD, const at::Tensor& ids_BT,
                       const ops::TokenOrder& order, int64_t layer, AttentionScope& scope) const;
  /// What comes behind the product with `up`.
  at::Tensor feed_forward(const Block& block, const at::Tensor& up_BTF) const;

  at::Tensor embedding_, head_;
  at::Tensor residual_scales_, x0_scales_, smear_gate_, smear_scale_, backout_scale_;
  std::vector<Block> blocks_;
  Rotary rotary_;
};

ActivationMemory nanochat_activations(const ModelConfig& config, const PassShape& shape);

}  // namespace tightloop
