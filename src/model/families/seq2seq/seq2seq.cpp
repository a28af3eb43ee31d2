#include "model/families/seq2seq/seq2seq.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <cmath>
#include <tuple>

#include "ops/linear.h"
#include "ops/norm/residual_norm.h"
#include "ops/pointwise/activation.h"
#include "ops/pointwise/embedding.h"

namespace tightloop {

/// Every use is another place, so that no two of a pass drop alike; the decoder's come after the encoder's.
class Seq2Seq::Dropouts {
 public:
  Dropouts(const ModelConfig& config, const Pass& pass, bool decoder)
      : next_{pass.training ? config.dropout : 0, pass.random, decoder ? 1 << 20 : 0} {
    TORCH_CHECK(next_.rate == 0 || next_.random.defined(), "training with dropout needs Pass::random");
  }
  ops::Dropout next() {
    auto drop = next_;
    ++next_.site;
    return drop;
  }

 private:
  ops::Dropout next_;
};

void Memory::select_rows(const at::Tensor& rows) {
  states_BSD = states_BSD.index_select(0, rows);
  mask.lengths = mask.lengths.index_select(0, rows);
  if (mask.bias.defined()) mask.bias = mask.bias.index_select(0, rows);
  for (auto& kv : cross) kv = kv.index_select(0, rows);
}

Seq2Seq::Seq2Seq(const ModelConfig& config, Seed seed)
    : Model(config, seed),
      rotary_(rotary_frequencies(config)),
      waves_([D = config.width](int64_t rows) { return std::vector{sinusoidal_positions(rows, D)}; }) {
  const int64_t D = config.width;
  const Init normal{Init::kNormal, 1 / std::sqrt(static_cast<double>(D))};  // times sqrt(D) in use
  using enum ParameterRole;
  embedding_ = parameters_.add("embedding", {config.vocab_size, D}, normal, kEmbedding);
  source_embedding_ =
      config.share_embeddings
          ? embedding_
          : parameters_.add("source_embedding", {config.source_vocab_size, D}, normal, kEmbedding);
  for (int64_t layer = 0; layer < config.encoder_layers; ++layer)
    encoder_.push_back(add_block(fmt::format("encoder.blocks.{}.", layer), /*decoder=*/false));
  for (int64_t layer = 0; layer < config.layers; ++layer)
    decoder_.push_back(add_block(fmt::format("decoder.blocks.{}.", layer), /*decoder=*/true));
  if (config.norm_place == NormPlacement::kPre) {
    encoder_norm_ = add_norm("encoder.final_norm");
    decoder_norm_ = add_norm("decoder.final_norm");
  }
  const bool tied = config.share_embeddings || config.tie_embeddings;
  head_ = tied ? embedding_ : parameters_.add("head", {config.vocab_size, D}, normal, kHead);
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
  using enum ParameterRole;
  return {parameters_.add(name, {config_.width}, {Init::kOnes}, kNorm),
          parameters_.add(name + "_bias", {config_.width}, {Init::kZeros}, kBias)};
}

// Uniform as Glorot and Bengio have it, each of the stacked parts by itself.
Seq2Seq::Linear Seq2Seq::add_linear(const std::string& name, int64_t out, int64_t in, int64_t parts) {
  const double bound = std::sqrt(6.0 / static_cast<double>(out / parts + in));
  const Init uniform{.kind = Init::kUniform, .low = -bound, .high = bound};
  using enum ParameterRole;
  return {parameters_.add(name, {out, in}, uniform, kMatrix, std::vector<int64_t>(parts, out / parts)),
          parameters_.add(name + "_bias", {out}, {Init::kZeros}, kBias)};
}

Memory Seq2Seq::encode(const at::Tensor& source_BS, const at::Tensor& lengths_B, const Pass& pass) {
  const ops::KeyMask mask{lengths_B};
  Dropouts drops(config_, pass, /*decoder=*/false);
  auto x = begin(embed(source_embedding_, source_BS, nullptr, drops), encoder_, encoder_norm_);
  for (size_t layer = 0; layer < encoder_.size(); ++layer) {
    const Block& block = encoder_[layer];
    const auto seen = ops::self_attention(qkv(block, x.normed), mask, drops.next());
    x = follow(x, seen.flatten(2), block.out, block.attention_norm, block.ffn_norm, drops);
    const Norm& next = layer + 1 < encoder_.size() ? encoder_[layer + 1].attention_norm : encoder_norm_;
    x = follow(x, inner(block, x.normed, drops), block.down, block.ffn_norm, next, drops);
  }
  return {x.normed, mask};
}

at::Tensor Seq2Seq::qkv(const Block& block, const at::Tensor& x_BTD, const PagedTokens* paged) const {
  const auto made = ops::linear(x_BTD, block.qkv.weight, block.qkv.bias)
                        .view({x_BTD.size(0), x_BTD.size(1), 3, config_.heads, config_.head_size});
  if (config_.positions != PositionEncoding::kRotary) return made;
  const auto [q, k, v] =
      rotary_.split(made.flatten(2, 3), config_.heads, 0, {}, paged ? paged->positions_N : at::Tensor());
  return at::stack({q, k, v}, 2);
}

void Seq2Seq::remember(Memory& memory) const {
  const auto& states = memory.states_BSD;
  memory.mask.bias = ops::length_bias(memory.mask.lengths, states.size(1), states.scalar_type());
  for (const Block& block : decoder_) memory.cross.push_back(cross_kv(block, states));
}

at::Tensor Seq2Seq::cross_kv(const Block& block, const at::Tensor& states_BSD) const {
  return ops::linear(states_BSD, block.cross_kv.weight, block.cross_kv.bias)
      .view({states_BSD.size(0), states_BSD.size(1), 2, config_.heads, config_.head_size});
}

at::Tensor Seq2Seq::decode(const at::Tensor& target_RT, const Memory& memory, const Pass& pass) {
  const int64_t R = target_RT.size(0), T = target_RT.size(1), B = memory.states_BSD.size(0),
                D = config_.width;
  TORCH_CHECK(R % B == 0, "decode: targets must be a multiple of the sources");
  TORCH_CHECK(!pass.cache && (!pass.paged || T == 1), "decode: targets go on in pages, one token at a time");
  Dropouts drops(config_, pass, /*decoder=*/true);
  auto x = begin(embed(embedding_, target_RT, pass.paged, drops), decoder_, decoder_norm_);
  for (size_t layer = 0; layer < decoder_.size(); ++layer) {
    const Block& block = decoder_[layer];
    const auto made = qkv(block, x.normed, pass.paged);
    const auto seen = pass.paged ? next_tokens(made, *pass.paged, static_cast<int64_t>(layer))
                                 : ops::self_attention(made, {.causal = true}, drops.next());
    x = follow(x, seen.flatten(2), block.out, block.attention_norm, block.cross_norm, drops);

    // The rows of one source are so many more queries to the same keys.
    const auto q = ops::linear(x.normed, block.cross_q.weight, block.cross_q.bias)
                       .view({B, R / B * T, config_.heads, config_.head_size});
    const auto kv = memory.cross.empty() ? cross_kv(block, memory.states_BSD) : memory.cross[layer];
    const auto found = ops::cross_attention(q, kv, memory.mask, drops.next());
    x = follow(x, found.reshape({R, T, D}), block.cross_out, block.cross_norm, block.ffn_norm, drops);

    const Norm& next = layer + 1 < decoder_.size() ? decoder_[layer + 1].attention_norm : decoder_norm_;
    x = follow(x, inner(block, x.normed, drops), block.down, block.ffn_norm, next, drops);
  }
  return x.normed;
}

at::Tensor Seq2Seq::next_tokens(const at::Tensor& qkv, const PagedTokens& paged, int64_t layer) const {
  const auto part = [&](int64_t which) { return qkv.squeeze(1).select(1, which); };
  return attend_to_pages(paged, layer, part(0), part(1), part(2)).unsqueeze(1);
}

at::Tensor Seq2Seq::normed(const at::Tensor& x, const Norm& norm) const {
  return ops::layer_norm(x, norm.weight, norm.bias, config_.norm_eps);
}

ops::NormedSum Seq2Seq::begin(const at::Tensor& x, const std::vector<Block>& blocks, const Norm& last) const {
  if (config_.norm_place == NormPlacement::kPost) return {x, x};
  return {x, normed(x, blocks.empty() ? last : blocks[0].attention_norm)};
}

ops::NormedSum Seq2Seq::follow(const ops::NormedSum& x, const at::Tensor& y, const Linear& linear,
                               const Norm& own, const Norm& next, Dropouts& drops) const {
  const bool post = config_.norm_place == NormPlacement::kPost;
  const Norm& norm = post ? own : next;
  auto made = ops::residual_norm(x.sum, ops::linear(y, linear.weight), linear.bias, norm.weight, norm.bias,
                                 config_.norm_eps, drops.next());
  if (post) made.sum = made.normed;
  return made;
}

at::Tensor Seq2Seq::embed(const at::Tensor& weight, const at::Tensor& ids, const PagedTokens* paged,
                          Dropouts& drops) {
  const int64_t end = paged ? paged->longest : ids.size(1);
  const auto x = ops::embedding(weight, ids) * std::sqrt(static_cast<double>(config_.width));
  if (config_.positions == PositionEncoding::kRotary) {
    rotary_.cover(end, ids.device());
    return ops::dropout(x, drops.next());
  }
  const at::Tensor& waves = waves_.cover(end, x.device(), x.scalar_type())[0];
  return ops::dropout(
      x + (paged ? waves.index_select(0, paged->positions_N).unsqueeze(1) : waves.narrow(0, 0, end)),
      drops.next());
}

at::Tensor Seq2Seq::inner(const Block& block, const at::Tensor& x, Dropouts& drops) const {
  const auto kind =
      config_.activation == Activation::kGelu ? ops::ActivationKind::kGelu : ops::ActivationKind::kRelu;
  return ops::activation(ops::linear(x, block.up.weight), block.up.bias, kind, drops.next());
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
