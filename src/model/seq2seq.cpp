#include "model/seq2seq.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/triu.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "ops/config.h"
#include "ops/dropout.h"

namespace tightloop {

namespace {

// Far enough below every score that exp() of the difference is 0, finite so that a row without any token
// gives no NaN, and within fp16.
constexpr double kNever = -3e4;

/// Keys that a query must not see, as something to add to its scores: (T, T).
at::Tensor causal_bias(int64_t length, const at::Tensor& like) {
  return at::full({length, length}, kNever, like.options()).triu(1);
}

}  // namespace

/// Every use is another place, so that no two of a pass drop alike; the decoder's come after the encoder's.
class Seq2Seq::Dropout {
 public:
  Dropout(const ModelConfig& config, const Pass& pass, bool decoder)
      : share_(pass.training ? config.dropout : 0), random_(pass.random), site_(decoder ? 1 << 20 : 0) {
    TORCH_CHECK(share_ == 0 || random_.defined(), "training with dropout needs Pass::random");
  }
  bool on() const { return share_ > 0; }
  at::Tensor operator()(const at::Tensor& x) { return ops::dropout(x, share_, random_, site_++); }

  /// Softmax of queries (B, T, H, S') times keys (B, H, S, S'), times values; `bias` is added to the scores,
  /// or a query sees no key behind its own place. Gives (B, T, H * S').
  at::Tensor attend(const at::Tensor& q_BTHS, const at::Tensor& k_BHSS, const at::Tensor& v_BHSS,
                    const std::optional<at::Tensor>& bias, bool causal) {
    const auto q = q_BTHS.transpose(1, 2);
    const int64_t B = q.size(0), H = q.size(1), T = q.size(2), size = q.size(3), keys = k_BHSS.size(2);
    at::Tensor y;
    if (on() || ops::plain()) {  // torch's own attention drops by a generator's state
      auto scores = at::matmul(q * (1 / std::sqrt(static_cast<double>(size))), k_BHSS.transpose(2, 3));
      if (bias) scores = scores + *bias;
      if (causal) scores = scores + causal_bias(T, scores);
      y = at::matmul((*this)(at::softmax(scores, -1)), v_BHSS);
    } else {
      std::optional<at::Tensor> mask;
      if (bias) mask = bias->expand({B, H, T, keys});
      y = at::scaled_dot_product_attention(q, k_BHSS, v_BHSS, mask, /*dropout_p=*/0, causal);
    }
    return y.transpose(1, 2).reshape({B, T, H * size});
  }

 private:
  double share_;
  at::Tensor random_;
  int64_t site_;
};

void Memory::select_rows(const at::Tensor& rows) {
  states_BSD = states_BSD.index_select(0, rows);
  bias_B11S = bias_B11S.index_select(0, rows);
  for (auto& [keys, values] : cross) keys = keys.index_select(0, rows), values = values.index_select(0, rows);
}

Seq2Seq::Seq2Seq(const ModelConfig& config, uint64_t seed)
    : config_(config), parameters_(seed), rotary_(rotary_frequencies(config)) {
  const int64_t D = config.width;
  const Init normal{Init::kNormal, 1 / std::sqrt(static_cast<double>(D))};  // times sqrt(D) in use
  embedding_ = parameters_.add("embedding", {config.vocab_size, D}, normal);
  source_embedding_ = config.share_embeddings
                          ? embedding_
                          : parameters_.add("source_embedding", {config.source_vocab_size, D}, normal);
  for (int64_t layer = 0; layer < config.encoder_layers; ++layer)
    encoder_.push_back(add_block(fmt::format("encoder.blocks.{}.", layer), /*decoder=*/false));
  for (int64_t layer = 0; layer < config.layers; ++layer)
    decoder_.push_back(add_block(fmt::format("decoder.blocks.{}.", layer), /*decoder=*/true));
  if (config.norm_place == "pre") {
    encoder_norm_ = add_norm("encoder.final_norm");
    decoder_norm_ = add_norm("decoder.final_norm");
  }
  const bool tied = config.share_embeddings || config.tie_embeddings;
  head_ = tied ? embedding_ : parameters_.add("head", {config.vocab_size, D}, normal);
}

Seq2Seq::Block Seq2Seq::add_block(const std::string& prefix, bool decoder) {
  const int64_t D = config_.width, F = config_.ffn;
  Block block;
  block.attention_norm = add_norm(prefix + "attention_norm");
  block.qkv = add_linear(prefix + "qkv", 3 * D, D, 3);
  block.out = add_linear(prefix + "out", D, D);
  if (decoder) {
    block.cross_norm = add_norm(prefix + "cross_norm");
    block.cross_q = add_linear(prefix + "cross_q", D, D);
    block.cross_kv = add_linear(prefix + "cross_kv", 2 * D, D, 2);
    block.cross_out = add_linear(prefix + "cross_out", D, D);
  }
  block.ffn_norm = add_norm(prefix + "ffn_norm");
  block.up = add_linear(prefix + "up", F, D);
  block.down = add_linear(prefix + "down", D, F);
  return block;
}

Seq2Seq::Norm Seq2Seq::add_norm(const std::string& name) {
  return {parameters_.add(name, {config_.width}, {Init::kOnes}),
          parameters_.add(name + "_bias", {config_.width}, {Init::kZeros})};
}

// Uniform as Glorot and Bengio have it, each of the stacked parts by itself.
Seq2Seq::Linear Seq2Seq::add_linear(const std::string& name, int64_t out, int64_t in, int64_t parts) {
  const double bound = std::sqrt(6.0 / static_cast<double>(out / parts + in));
  return {parameters_.add(name, {out, in}, {.kind = Init::kUniform, .low = -bound, .high = bound}),
          parameters_.add(name + "_bias", {out}, {Init::kZeros})};
}

Memory Seq2Seq::encode(const at::Tensor& source_BS, const at::Tensor& lengths_B, const Pass& pass) {
  const int64_t B = source_BS.size(0), S = source_BS.size(1), H = config_.heads;
  Dropout drop(config_, pass, /*decoder=*/false);
  auto x = embed(source_embedding_, source_BS, 0, drop);
  const auto padding = at::arange(S, lengths_B.options()) >= lengths_B.unsqueeze(1);  // (B, S)
  const auto bias = (padding.to(x.scalar_type()) * kNever).view({B, 1, 1, S});
  for (const Block& block : encoder_) {
    x = residual(x, block.attention_norm, drop, [&](const at::Tensor& y) {
      const auto qkv = at::linear(y, block.qkv.weight, block.qkv.bias).view({B, S, 3, H, config_.head_size});
      auto q = qkv.select(2, 0), k = qkv.select(2, 1);
      if (config_.positions == "rotary") q = rotary_.turn(q, 0), k = rotary_.turn(k, 0);
      const auto seen = drop.attend(q, k.transpose(1, 2), qkv.select(2, 2).transpose(1, 2), bias,
                                    /*causal=*/false);
      return at::linear(seen, block.out.weight, block.out.bias);
    });
    x = residual(x, block.ffn_norm, drop, [&](const at::Tensor& y) { return feed_forward(block, y, drop); });
  }
  return {encoder_norm_.weight.defined() ? normed(x, encoder_norm_) : x, bias};
}

void Seq2Seq::remember(Memory& memory) const {
  for (const Block& block : decoder_) memory.cross.push_back(cross_keys(block, memory.states_BSD));
}

std::pair<at::Tensor, at::Tensor> Seq2Seq::cross_keys(const Block& block,
                                                      const at::Tensor& states_BSD) const {
  const auto kv = at::linear(states_BSD, block.cross_kv.weight, block.cross_kv.bias)
                      .view({states_BSD.size(0), states_BSD.size(1), 2, config_.heads, config_.head_size});
  return {kv.select(2, 0).transpose(1, 2), kv.select(2, 1).transpose(1, 2)};
}

at::Tensor Seq2Seq::decode(const at::Tensor& target_RT, const Memory& memory, const Pass& pass) {
  const int64_t R = target_RT.size(0), T = target_RT.size(1), B = memory.states_BSD.size(0),
                H = config_.heads, size = config_.head_size;
  const int64_t past = pass.cache ? pass.cache->length() : 0;
  TORCH_CHECK(R % B == 0, "decode: targets must be a multiple of the sources");
  TORCH_CHECK(past == 0 || T == 1, "decode: a cache is continued by one token at a time");
  Dropout drop(config_, pass, /*decoder=*/true);
  auto x = embed(embedding_, target_RT, past, drop);
  for (size_t layer = 0; layer < decoder_.size(); ++layer) {
    const Block& block = decoder_[layer];
    x = residual(x, block.attention_norm, drop, [&](const at::Tensor& y) {
      const auto qkv = at::linear(y, block.qkv.weight, block.qkv.bias).view({R, T, 3, H, size});
      auto q = qkv.select(2, 0), k = qkv.select(2, 1);
      if (config_.positions == "rotary") q = rotary_.turn(q, past), k = rotary_.turn(k, past);
      auto keys = k.transpose(1, 2), values = qkv.select(2, 2).transpose(1, 2);
      if (pass.cache) std::tie(keys, values) = pass.cache->append(static_cast<int64_t>(layer), keys, values);
      const auto seen = drop.attend(q, keys, values, {}, /*causal=*/T > 1);
      return at::linear(seen, block.out.weight, block.out.bias);
    });
    x = residual(x, block.cross_norm, drop, [&](const at::Tensor& y) {
      // The rows of one source are so many more queries to the same keys.
      const auto q = at::linear(y, block.cross_q.weight, block.cross_q.bias).view({B, R / B * T, H, size});
      const auto [keys, values] =
          memory.cross.empty() ? cross_keys(block, memory.states_BSD) : memory.cross[layer];
      const auto seen = drop.attend(q, keys, values, memory.bias_B11S, /*causal=*/false);
      return at::linear(seen.view({R, T, H * size}), block.cross_out.weight, block.cross_out.bias);
    });
    x = residual(x, block.ffn_norm, drop, [&](const at::Tensor& y) { return feed_forward(block, y, drop); });
  }
  if (pass.cache) pass.cache->advance(T);
  return decoder_norm_.weight.defined() ? normed(x, decoder_norm_) : x;
}

at::Tensor Seq2Seq::normed(const at::Tensor& x, const Norm& norm) const {
  return at::layer_norm(x, {config_.width}, norm.weight, norm.bias, config_.norm_eps);
}

template <class Part>
at::Tensor Seq2Seq::residual(const at::Tensor& x, const Norm& norm, Dropout& drop, Part&& part) const {
  if (config_.norm_place == "pre") return x + drop(part(normed(x, norm)));
  return normed(x + drop(part(x)), norm);
}

at::Tensor Seq2Seq::embed(const at::Tensor& weight, const at::Tensor& ids, int64_t past, Dropout& drop) {
  const int64_t T = ids.size(1), D = config_.width;
  const auto x = at::embedding(weight, ids) * std::sqrt(static_cast<double>(D));
  if (config_.positions == "rotary") {
    rotary_.cover(past + T, ids.device());
    return drop(x);
  }
  if (!waves_.defined() || waves_.size(0) < past + T || waves_.device() != x.device() ||
      waves_.scalar_type() != x.scalar_type()) {
    c10::InferenceMode ordinary(false);  // training may use the table that translating made
    const int64_t rows = std::max<int64_t>(256, (past + T + 127) / 128 * 128);
    waves_ = sinusoidal_positions(rows, D).to(x.device(), x.scalar_type());
  }
  return drop(x + waves_.narrow(0, past, T));
}

at::Tensor Seq2Seq::feed_forward(const Block& block, const at::Tensor& x, Dropout& drop) const {
  const auto up = at::linear(x, block.up.weight, block.up.bias);
  const auto inner = config_.activation == "gelu" ? at::gelu(up) : at::relu(up);
  return at::linear(drop(inner), block.down.weight, block.down.bias);
}

at::Tensor Seq2Seq::logits(const at::Tensor& hidden) const {
  const auto logits = at::linear(hidden, head_);
  if (config_.softcap == 0) return logits;
  return at::tanh(logits.to(at::kFloat) / config_.softcap) * config_.softcap;
}

at::Tensor sinusoidal_positions(int64_t length, int64_t width) {
  auto table = at::empty({length, width}, at::kFloat);
  float* out = table.mutable_data_ptr<float>();
  for (int64_t p = 0; p < length; ++p) {
    for (int64_t i = 0; i < width; ++i) {
      const double angle = static_cast<double>(p) *
                           std::pow(10000.0, -static_cast<double>(i / 2 * 2) / static_cast<double>(width));
      *out++ = static_cast<float>(i % 2 ? std::cos(angle) : std::sin(angle));
    }
  }
  return table;
}

}  // namespace tightloop
