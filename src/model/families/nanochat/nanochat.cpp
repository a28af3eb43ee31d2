#include "model/families/nanochat/nanochat.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/core.h>

#include <cmath>

#include "ops/decode/normed_linear.h"
#include "ops/linear.h"
#include "ops/norm/rms_norm.h"
#include "ops/pointwise/activation.h"
#include "ops/pointwise/gated_add.h"

namespace tightloop {

namespace {

constexpr double kSharpness = 1.2 * 1.2;  // queries and keys are scaled by 1.2 each

std::vector<double> backwards(std::vector<double> frequencies) {
  for (double& frequency : frequencies) frequency = -frequency;
  return frequencies;
}

}  // namespace

Nanochat::Nanochat(const ModelConfig& config, Seed seed)
    : LanguageModel(config, seed), rotary_(backwards(rotary_frequencies(config))) {
  const int64_t L = config.layers, D = config.width, V = config.vocab_size;
  const int64_t H = config.heads, K = config.kv_heads, S = config.head_size;
  const double bound = std::sqrt(3.0 / static_cast<double>(D));  // a spread of 1 / sqrt(D)
  const Init zeros{Init::kZeros};
  const auto uniform = [](double low, double high) {
    return Init{.kind = Init::kUniform, .low = low, .high = high};
  };
  const auto ramp = [](double first, double last) {
    return Init{.kind = Init::kRamp, .low = first, .high = last};
  };

  using enum ParameterRole;
  embedding_ = parameters_.add("embedding", {V, D}, {Init::kNormal, 0.8}, kEmbedding);
  residual_scales_ = parameters_.add("residual_scales", {L}, ramp(1.15, 1.05), kResidualScale);
  x0_scales_ = parameters_.add("x0_scales", {L}, ramp(0.20, 0.05), kInputScale);
  smear_gate_ = parameters_.add("smear_gate", {1, kSmearChannels}, uniform(0, 0.02), kSmear);
  smear_scale_ = parameters_.add("smear_scale", {1}, zeros, kSmear);
  backout_scale_ = parameters_.add("backout_scale", {1}, ramp(0.2, 0.2), kSmear);
  for (int64_t layer = 0; layer < L; ++layer) {
    const auto add = [&](const char* name, at::IntArrayRef shape, Init init, ParameterRole role,
                         std::vector<int64_t> parts = {}) {
      return parameters_.add(fmt::format("blocks.{}.{}", layer, name), shape, init, role, std::move(parts));
    };
    Block& block = blocks_.emplace_back();
    block.qkv = add("qkv", {(H + 2 * K) * S, D}, uniform(-bound, bound), kMatrix, {H * S, K * S, K * S});
    block.out = add("out", {D, H * S}, zeros, kMatrix);
    block.up = add("up", {config.ffn, D}, uniform(-0.4 * bound, 0.4 * bound), kMatrix);
    block.down = add("down", {D, config.ffn}, zeros, kMatrix);
    if (!has_value_embedding(config, layer)) continue;
    block.value_embedding = add("value_embedding", {V, K * S}, uniform(-bound, bound), kValueEmbedding);
    block.value_gate = add("value_gate", {K, kValueGateChannels}, uniform(0, 0.02), kMatrix);
  }
  head_ = parameters_.add("head", {V, D}, {Init::kNormal, 0.001}, kHead);
}

at::Tensor Nanochat::Stream::sum() const { return branch.defined() ? residual + branch : residual; }

Forward Nanochat::forward(const at::Tensor& ids_BT, const Pass& pass) {
  const int64_t T = ids_BT.size(1);
  const auto scope = std::make_shared<AttentionScope>(ids_BT, pass, /*dropout=*/0);
  rotary_.cover(scope->end(), ids_BT.device());

  const auto order = ops::token_order(embedding_, ids_BT);  // for the value embeddings too
  const auto x0 = smear(norm(ops::embedding(embedding_, ids_BT, order)), pass);
  Stream stream{.x0 = x0, .residual = x0};
  at::Tensor middle;
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    const auto block = [this, layer, scope, ids_BT, order](const Inputs& in) {
      return this->block(in, ids_BT, order, layer, *scope);
    };
    stream = run_block(layer, pass, block, Inputs{stream, residual_scales_, x0_scales_});
    if (layer == config_.layers / 2) stream = {stream.x0, middle = stream.sum()};
  }
  if (pass.cache) pass.cache->advance(T);
  return {ops::mix_rms_norm(middle, stream.residual, stream.branch, config_.norm_eps,
                            {.x = -backout_scale_, .y = at::ones_like(backout_scale_)})
              .normed};
}

Nanochat::Stream Nanochat::block(const Inputs& in, const at::Tensor& ids_BT, const ops::TokenOrder& order,
                                 int64_t layer, AttentionScope& scope) const {
  const Block& block = blocks_[layer];
  const auto begin = ops::mix_rms_norm(in.stream.x0, in.stream.residual, in.stream.branch, config_.norm_eps,
                                       {.x = in.x0_scales[layer], .y = in.residual_scales[layer]});
  const auto [sum, up] = ops::normed_linear(
      begin.sum, attention(block, begin.normed, ids_BT, order, layer, scope), {}, config_.norm_eps, block.up);
  return {.x0 = begin.x, .residual = sum, .branch = feed_forward(block, up)};
}

at::Tensor Nanochat::norm(const at::Tensor& x) const { return ops::rms_norm(x, {}, config_.norm_eps); }

at::Tensor Nanochat::before(const at::Tensor& x_BTD, const Pass& pass) const {
  if (pass.paged) {
    const auto any = (pass.paged->positions_N > 0).view({-1, 1, 1});
    return norm(ops::embedding(embedding_, pass.paged->previous_N1)) * any;
  }
  const int64_t T = x_BTD.size(1);
  const auto last = pass.cache ? pass.cache->last_embedding() : at::Tensor();
  const bool continued = last.defined();
  const auto first = x_BTD.narrow(1, 0, 1);
  if (pass.cache) pass.cache->set_last_embedding(x_BTD.narrow(1, T - 1, 1));
  return at::cat({continued ? last : at::zeros_like(first), x_BTD.narrow(1, 0, T - 1)}, 1);
}

at::Tensor Nanochat::smear(const at::Tensor& x_BTD, const Pass& pass) const {
  auto gate = smear_scale_ * at::sigmoid(ops::linear(x_BTD.narrow(2, 0, kSmearChannels), smear_gate_));
  if (pass.documents_BT.defined()) gate = gate * continues_document(pass.documents_BT).unsqueeze(2);
  return x_BTD + gate * before(x_BTD, pass);
}

at::Tensor Nanochat::attention(const Block& block, const at::Tensor& x_BTD, const at::Tensor& ids_BT,
                               const ops::TokenOrder& order, int64_t layer, AttentionScope& scope) const {
  const int64_t B = x_BTD.size(0), T = x_BTD.size(1);
  const int64_t H = config_.heads, K = config_.kv_heads, S = config_.head_size;
  const auto qkv = ops::linear(x_BTD, block.qkv).view({B, T, H + 2 * K, S});
  // nanochat norms after RoPE; a rotation changes no length, so the order is free.
  auto [q, k, v] =
      rotary_.split(qkv, H, scope.past(), ops::HeadNorm{config_.norm_eps, {}, {}}, scope.positions());
  if (block.value_gate.defined()) {
    const auto open = ops::linear(x_BTD.narrow(2, 0, kValueGateChannels), block.value_gate);
    const auto extra = ops::embedding(block.value_embedding, ids_BT, order).view({B, T, K, S});
    v = ops::gated_add(v, open, extra, /*scale=*/3);
  }
  const double scale = kSharpness / std::sqrt(static_cast<double>(S));
  const auto y = scope.attend(q, k, v, layer, {.scale = scale, .window = config_.window(layer)});
  return ops::linear(y, block.out, {}, ops::Input::kKept);
}

at::Tensor Nanochat::feed_forward(const Block& block, const at::Tensor& up_BTF) const {
  return ops::linear(ops::activation(up_BTF, {}, ops::ActivationKind::kReluSquare), block.down, {},
                     ops::Input::kKept);
}

}  // namespace tightloop
