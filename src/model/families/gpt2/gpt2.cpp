#include "model/families/gpt2/gpt2.h"

#include <ATen/TensorOperators.h>

#include <cmath>

#include "core/error.h"
#include "ops/linear.h"
#include "ops/norm/residual_norm.h"
#include "ops/pointwise/embedding.h"
#include "ops/pointwise/gelu_feed_forward.h"

namespace tightloop {

Gpt2::Gpt2(const ModelConfig& config, Seed seed) : LanguageModel(config, seed) {
  const int64_t D = config.width, F = config.ffn;
  const Init ones{Init::kOnes}, zeros{Init::kZeros}, normal{Init::kNormal, config.init_std};
  const Init residual{Init::kNormal, config.init_std / std::sqrt(2.0 * static_cast<double>(config.layers))};

  using enum ParameterRole;
  embedding_ = parameters_.add("embedding", {config.vocab_size, D}, normal, kEmbedding);
  positions_ = parameters_.add("positions", {config.context, D}, normal, kEmbedding);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto add = [&](const char* name, at::IntArrayRef shape, Init init, ParameterRole role,
                         std::vector<int64_t> parts = {}) {
      return parameters_.add(fmt::format("blocks.{}.{}", layer, name), shape, init, role, std::move(parts));
    };
    blocks_.push_back(Block{
        .attention_norm = add("attention_norm", {D}, ones, kNorm),
        .attention_norm_bias = add("attention_norm_bias", {D}, zeros, kBias),
        .qkv = add("qkv", {3 * D, D}, normal, kMatrix, {D, D, D}),
        .qkv_bias = add("qkv_bias", {3 * D}, zeros, kBias),
        .out = add("out", {D, D}, residual, kMatrix),
        .out_bias = add("out_bias", {D}, zeros, kBias),
        .ffn_norm = add("ffn_norm", {D}, ones, kNorm),
        .ffn_norm_bias = add("ffn_norm_bias", {D}, zeros, kBias),
        .up = add("up", {F, D}, normal, kMatrix),
        .up_bias = add("up_bias", {F}, zeros, kBias),
        .down = add("down", {D, F}, residual, kMatrix),
        .down_bias = add("down_bias", {D}, zeros, kBias),
    });
  }
  final_norm_ = parameters_.add("final_norm", {D}, ones, kNorm);
  final_norm_bias_ = parameters_.add("final_norm_bias", {D}, zeros, kBias);
  head_ = config.tie_embeddings ? embedding_ : parameters_.add("head", {config.vocab_size, D}, normal, kHead);
}

Forward Gpt2::forward(const at::Tensor& ids_BT, const Pass& pass) {
  const auto scope = std::make_shared<AttentionScope>(ids_BT, pass, config_.dropout);
  // What a block's second part made is added where the next one begins, in one pass with its norm. The bias
  // goes along as an input, since it is a parameter of the block before.
  BlockInputs state{.residual =
                        scope->drop(embed(ids_BT, pass.documents_BT, *scope), 0, DropoutSite::kEmbedding)};
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    const auto block = [this, layer, scope](const BlockInputs& in) { return this->block(in, layer, *scope); };
    const auto made = run_block(layer, pass, block, state);
    state = {made.residual, made.branch, blocks_[layer].down_bias};
  }
  if (pass.cache) pass.cache->advance(ids_BT.size(1));
  return {begin(state, config_.layers, final_norm_, final_norm_bias_, *scope).normed};
}

BlockOutputs Gpt2::block(const BlockInputs& in, int64_t layer, AttentionScope& scope) const {
  const Block& block = blocks_[layer];
  const auto first = begin(in, layer, block.attention_norm, block.attention_norm_bias, scope);
  const auto then = ops::residual_norm(first.sum, attention(block, first.normed, layer, scope),
                                       block.out_bias, block.ffn_norm, block.ffn_norm_bias, config_.norm_eps,
                                       scope.dropout(layer, DropoutSite::kAttention));
  return {.residual = then.sum, .branch = feed_forward(block, then.normed)};
}

ops::NormedSum Gpt2::begin(const BlockInputs& in, int64_t layer, const at::Tensor& weight,
                           const at::Tensor& bias, const AttentionScope& scope) const {
  if (!in.branch.defined())
    return {in.residual, ops::layer_norm(in.residual, weight, bias, config_.norm_eps)};
  return ops::residual_norm(in.residual, in.branch, in.branch_bias, weight, bias, config_.norm_eps,
                            scope.dropout(layer - 1, DropoutSite::kFeedForward));
}

at::Tensor Gpt2::embed(const at::Tensor& ids_BT, const at::Tensor& documents_BT,
                       const AttentionScope& scope) const {
  if (scope.end() > config_.context) {
    throw usage_error("{} tokens do not fit: this gpt2 model has positions for {} (model.context).",
                      scope.end(), config_.context);
  }
  const auto own = scope.positions();
  if (own.defined())
    return ops::embedding(embedding_, ids_BT) +
           ops::embedding(positions_, own.clamp_min(0).to(at::kLong).unsqueeze(1));
  const auto positions = documents_BT.defined()
                             ? ops::embedding(positions_, positions_in_documents(documents_BT))
                             : positions_.narrow(0, scope.past(), ids_BT.size(1));
  return ops::embedding(embedding_, ids_BT) + positions;
}

at::Tensor Gpt2::attention(const Block& block, const at::Tensor& x_BTD, int64_t layer,
                           AttentionScope& scope) const {
  const int64_t B = x_BTD.size(0), T = x_BTD.size(1), H = config_.heads;
  const auto qkv = ops::linear(x_BTD, block.qkv, block.qkv_bias).view({B, T, 3 * H, config_.head_size});
  const auto parts = qkv.split(H, 2);  // one gradient, where slices would be padded and added
  return ops::linear(scope.attend(parts[0], parts[1], parts[2], layer, {.qkv_BTJS = qkv}), block.out, {},
                     ops::Input::kKept);
}

at::Tensor Gpt2::feed_forward(const Block& block, const at::Tensor& x_BTD) const {
  return ops::gelu_feed_forward(x_BTD, block.up, block.up_bias, block.down);
}

}  // namespace tightloop
