#include "model/families/llama/llama.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <fmt/core.h>

#include <cmath>

#include "ops/decode/normed_linear.h"
#include "ops/decode/swiglu_linear.h"
#include "ops/linear.h"
#include "ops/norm/rms_norm.h"
#include "ops/pointwise/embedding.h"

namespace tightloop {

Llama::Llama(const ModelConfig& config, Seed seed)
    : LanguageModel(config, seed), rotary_(rotary_frequencies(config)) {
  const int64_t D = config.width, F = config.ffn, S = config.head_size, E = config.experts,
                X = config.expert_ffn;
  const int64_t q = config.heads * S, kv = config.kv_heads * S, qkv = q + 2 * kv;
  const Init ones{Init::kOnes}, zeros{Init::kZeros}, normal{Init::kNormal, config.init_std};
  const Init residual{Init::kNormal, config.init_std / std::sqrt(2.0 * static_cast<double>(config.layers))};

  using enum ParameterRole;
  embedding_ = parameters_.add("embedding", {config.vocab_size, D}, normal, kEmbedding);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto add = [&](const char* name, at::IntArrayRef shape, Init init, ParameterRole role,
                         std::vector<int64_t> parts = {}) {
      return parameters_.add(fmt::format("blocks.{}.{}", layer, name), shape, init, role, std::move(parts));
    };
    Block& block = blocks_.emplace_back();
    block.attention_norm = add("attention_norm", {D}, ones, kNorm);
    block.qkv = add("qkv", {qkv, D}, normal, kMatrix, {q, kv, kv});
    if (config.has_qkv_bias()) block.qkv_bias = add("qkv_bias", {qkv}, zeros, kBias);
    if (config.has_qk_norm()) {
      block.q_norm = add("q_norm", {S}, ones, kNorm);
      block.k_norm = add("k_norm", {S}, ones, kNorm);
    }
    block.out = add("out", {D, q}, residual, kMatrix);
    block.ffn_norm = add("ffn_norm", {D}, ones, kNorm);
    if (config.has_experts()) {
      block.experts = {.router_ED = add("router", {E, D}, normal, kMatrix),
                       .gate_up = add("expert_gate_up", {E, 2 * X, D}, normal, kMatrix, {X, X}),
                       .down = add("expert_down", {E, D, X}, residual, kMatrix)};
    } else {
      block.gate_up = add("gate_up", {2 * F, D}, normal, kMatrix, {F, F});
      block.down = add("down", {D, F}, residual, kMatrix);
    }
  }
  final_norm_ = parameters_.add("final_norm", {D}, ones, kNorm);
  head_ = config.tie_embeddings ? embedding_ : parameters_.add("head", {config.vocab_size, D}, normal, kHead);
}

Forward Llama::forward(const at::Tensor& ids_BT, const Pass& pass) {
  const int64_t T = ids_BT.size(1);
  const auto scope = std::make_shared<AttentionScope>(ids_BT, pass, config_.dropout);
  rotary_.cover(scope->end(), ids_BT.device());

  Forward result;
  std::vector<at::Tensor> loads;
  // What a block's second part made is added where the next one begins, in one pass with its norm.
  BlockInputs state{.residual = scope->drop(ops::embedding(embedding_, ids_BT), 0, DropoutSite::kEmbedding)};
  const bool balanced = pass.training && config_.balance_coef != 0;
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    const auto block = [this, layer, scope, balanced](const BlockInputs& in) {
      return this->block(in, layer, *scope, balanced);
    };
    const auto made = run_block(layer, pass, block, state);
    state = {made.residual, made.branch};
    if (made.expert_load.defined()) loads.push_back(made.expert_load.detach());
    if (made.balance.defined())
      result.balance = result.balance.defined() ? result.balance + made.balance : made.balance;
  }
  if (!loads.empty()) result.expert_loads_LE = at::stack(loads);
  if (pass.cache) pass.cache->advance(T);
  result.hidden_BTD = ops::add_rms_norm(state.residual, state.branch, final_norm_, config_.norm_eps).normed;
  return result;
}

BlockOutputs Llama::block(const BlockInputs& in, int64_t layer, AttentionScope& scope, bool balanced) const {
  const Block& block = blocks_[layer];
  auto then = attention(block, in, layer, scope);
  then.branch = scope.drop(then.branch, layer, DropoutSite::kAttention);
  return config_.has_experts() ? experts(block, then, balanced) : feed_forward(block, then);
}

BlockInputs Llama::attention(const Block& block, const BlockInputs& in, int64_t layer,
                             AttentionScope& scope) const {
  const int64_t B = in.residual.size(0), T = in.residual.size(1);
  const int64_t H = config_.heads, K = config_.kv_heads, S = config_.head_size;
  const auto bias = block.qkv_bias.defined() ? std::optional(block.qkv_bias) : std::nullopt;
  const auto [sum, qkv] =
      ops::normed_linear(in.residual, in.branch, block.attention_norm, config_.norm_eps, block.qkv, bias);
  std::optional<ops::HeadNorm> norm;
  if (block.q_norm.defined()) norm = {config_.norm_eps, block.q_norm, block.k_norm};
  const auto [q, k, v] =
      rotary_.split(qkv.view({B, T, H + 2 * K, S}), H, scope.past(), norm, scope.positions());
  return {sum, ops::linear(scope.attend(q, k, v, layer), block.out, {}, ops::Input::kKept)};
}

BlockOutputs Llama::feed_forward(const Block& block, const BlockInputs& in) const {
  const auto [sum, gate_up] =
      ops::normed_linear(in.residual, in.branch, block.ffn_norm, config_.norm_eps, block.gate_up);
  return {sum, ops::swiglu_linear(gate_up, block.down)};
}

BlockOutputs Llama::experts(const Block& block, const BlockInputs& in, bool balanced) const {
  const auto [sum, normed] = ops::add_rms_norm(in.residual, in.branch, block.ffn_norm, config_.norm_eps);
  const Routing routing = route(normed, block.experts, config_);
  return {.residual = sum,
          .branch = run_experts(normed, routing, block.experts),
          .expert_load = routing.load_E,
          .balance = balanced ? balance_loss(routing, config_) : at::Tensor()};
}

}  // namespace tightloop
