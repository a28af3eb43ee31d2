#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <fmt/format.h>

#include <limits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "model/family.h"
#include "model/language_model.h"
#include "ops/linear.h"
#include "ops/norm/rms_norm.h"
#include "ops/pointwise/activation.h"
#include "ops/pointwise/embedding.h"

namespace tightloop::testing {

/// A family that the program does not have: attention and feed-forward side by side on one norm, and ALiBi in
/// place of positions (scores fall with the distance, by a slope of each head's own).
class Parallel : public LanguageModel {
 public:
  Parallel(const ModelConfig& config, Seed seed) : LanguageModel(config, seed) {
    const int64_t D = config.width, F = config.ffn;
    const Init ones{Init::kOnes}, normal{Init::kNormal, config.init_std};
    using enum ParameterRole;
    embedding_ = parameters_.add("embedding", {config.vocab_size, D}, normal, kEmbedding);
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const auto name = [&](const char* part) { return fmt::format("blocks.{}.{}", layer, part); };
      blocks_.push_back({.norm = parameters_.add(name("norm"), {D}, ones, kNorm),
                         .qkv = parameters_.add(name("qkv"), {3 * D, D}, normal, kMatrix, {D, D, D}),
                         .out = parameters_.add(name("out"), {D, D}, normal, kMatrix),
                         .up = parameters_.add(name("up"), {F, D}, normal, kMatrix),
                         .down = parameters_.add(name("down"), {D, F}, normal, kMatrix)});
    }
    final_norm_ = parameters_.add("final_norm", {D}, ones, kNorm);
  }

  using LanguageModel::forward;
  Forward forward(const at::Tensor& ids_BT, const Pass& pass) override {
    BlockInputs state{.residual = ops::embedding(embedding_, ids_BT)};
    const auto bias = distances(ids_BT, pass).to(state.residual.scalar_type());
    KvCache* cache = pass.cache;
    for (int64_t layer = 0; layer < config_.layers; ++layer) {
      const auto block = [this, layer, bias, cache](const BlockInputs& in) {
        return this->block(in, layer, bias, cache);
      };
      state.residual = run_block(layer, pass, block, state).residual;
    }
    if (cache) cache->advance(ids_BT.size(1));
    return {ops::rms_norm(state.residual, final_norm_, config_.norm_eps)};
  }
  Head head() const override { return {embedding_, config_.softcap}; }

 private:
  struct Block {
    at::Tensor norm, qkv, out, up, down;
  };

  /// What is added to the scores, (B or 1, H, T, past + T).
  at::Tensor distances(const at::Tensor& ids_BT, const Pass& pass) const {
    const int64_t past = pass.cache ? pass.cache->length() : 0, T = ids_BT.size(1);
    const auto heads = at::arange(1, config_.heads + 1, ids_BT.options().dtype(at::kFloat));
    const auto by_head = -at::exp2(heads * (-8.0 / static_cast<double>(config_.heads))).view({1, -1, 1, 1});
    const auto keys = at::arange(past + T, ids_BT.options());
    const auto back = keys.narrow(0, past, T).unsqueeze(1) - keys;
    auto hidden = back < 0;
    if (const auto& documents = pass.documents_BT; documents.defined())
      hidden = (hidden | (documents.unsqueeze(2) != documents.unsqueeze(1))).unsqueeze(1);
    return (by_head * back).masked_fill(hidden, -std::numeric_limits<float>::infinity());
  }

  BlockOutputs block(const BlockInputs& in, int64_t layer, const at::Tensor& bias, KvCache* cache) const {
    const Block& block = blocks_[layer];
    const int64_t B = in.residual.size(0), T = in.residual.size(1), H = config_.heads;
    const auto x = ops::rms_norm(in.residual, block.norm, config_.norm_eps);
    const auto qkv = ops::linear(x, block.qkv).view({B, T, 3, H, config_.head_size}).permute({2, 0, 3, 1, 4});
    auto keys = qkv[1], values = qkv[2];
    if (cache) std::tie(keys, values) = cache->append(layer, keys, values);
    const auto seen = at::scaled_dot_product_attention(qkv[0], keys, values, bias);
    const auto attended = ops::linear(seen.transpose(1, 2).flatten(2), block.out);
    const auto inner = ops::activation(ops::linear(x, block.up), {}, ops::ActivationKind::kGeluTanh);
    return {.residual = in.residual + attended + ops::linear(inner, block.down)};
  }

  at::Tensor embedding_, final_norm_;
  std::vector<Block> blocks_;
};

inline void parallel_defaults(ModelConfig& config) {
  if (config.dropout != 0) throw usage_error("parallel has no dropout: leave out model.dropout.");
  config.tie_embeddings = true;
  if (config.ffn == 0) config.ffn = 4 * config.width;
}

}  // namespace tightloop::testing
