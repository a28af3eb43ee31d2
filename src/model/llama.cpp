#include "model/llama.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

namespace tightloop {

Llama::Llama(const ModelConfig& config, uint64_t seed) : LanguageModel(config, seed) {
  const int64_t D = config.width, F = config.ffn, head_size = config.head_size;
  const Init ones{Init::kOnes}, normal{Init::kNormal, config.init_std};
  const Init residual{Init::kNormal, config.init_std / std::sqrt(2.0 * static_cast<double>(config.layers))};

  embedding_ = parameters_.add("embedding", {config.vocab_size, D}, normal);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto add = [&](const char* name, at::IntArrayRef shape, Init init) {
      return parameters_.add(fmt::format("blocks.{}.{}", layer, name), shape, init);
    };
    blocks_.push_back(Block{
        .attention_norm = add("attention_norm", {D}, ones),
        .qkv = add("qkv", {(config.heads + 2 * config.kv_heads) * head_size, D}, normal),
        .out = add("out", {D, config.heads * head_size}, residual),
        .ffn_norm = add("ffn_norm", {D}, ones),
        .gate_up = add("gate_up", {2 * F, D}, normal),
        .down = add("down", {D, F}, residual),
    });
  }
  final_norm_ = parameters_.add("final_norm", {D}, ones);
  head_ = config.tie_embeddings ? embedding_ : parameters_.add("head", {config.vocab_size, D}, normal);
}

Forward Llama::forward(const at::Tensor& ids_BT, const Pass& pass) {
  KvCache* cache = pass.cache;
  const int64_t T = ids_BT.size(1);
  extend_rope((cache ? cache->length() : 0) + T, ids_BT.device());
  auto x = at::embedding(embedding_, ids_BT);
  for (size_t layer = 0; layer < blocks_.size(); ++layer) {
    const Block& block = blocks_[layer];
    x = x + attention(block, ops::rms_norm(x, block.attention_norm, config_.norm_eps), layer, cache);
    x = x + feed_forward(block, ops::rms_norm(x, block.ffn_norm, config_.norm_eps));
  }
  if (cache) cache->advance(T);
  return {ops::rms_norm(x, final_norm_, config_.norm_eps)};
}

at::Tensor Llama::attention(const Block& block, const at::Tensor& x_BTD, int64_t layer,
                            KvCache* cache) const {
  const int64_t B = x_BTD.size(0), T = x_BTD.size(1);
  const int64_t H = config_.heads, K = config_.kv_heads, S = config_.head_size;
  const auto qkv = at::linear(x_BTD, block.qkv).view({B, T, H + 2 * K, S});
  const int64_t past = cache ? cache->length() : 0;
  auto [q, k] = ops::rope(qkv.narrow(2, 0, H), qkv.narrow(2, H, K), cos_, sin_, past);
  q = q.transpose(1, 2), k = k.transpose(1, 2);
  auto v = qkv.narrow(2, H + K, K).transpose(1, 2);
  if (cache) std::tie(k, v) = cache->append(layer, k, v);
  // A pass over several tokens starts an empty cache (causal); one token looks at all that came before.
  TORCH_CHECK(past == 0 || T == 1, "a cache is continued one token at a time");
  const auto y =
      at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                       /*is_causal=*/T > 1, /*scale=*/std::nullopt, /*enable_gqa=*/H != K);
  return at::linear(y.transpose(1, 2).reshape({B, T, H * S}), block.out);
}

at::Tensor Llama::feed_forward(const Block& block, const at::Tensor& x_BTD) const {
  return at::linear(ops::swiglu(at::linear(x_BTD, block.gate_up)), block.down);
}

void Llama::extend_rope(int64_t length, at::Device device) {
  if (cos_.defined() && cos_.size(0) >= length && cos_.device() == device) return;
  const int64_t rows = std::max<int64_t>(128, (length + 127) / 128 * 128);
  auto [cos, sin] = ops::rope_tables(rows, config_.head_size, config_.rope_theta);
  cos_ = cos.to(device), sin_ = sin.to(device);
}

}  // namespace tightloop
