#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"

namespace tightloop {

enum class RopeScaling { kNone, kLlama3 };
template <>
inline constexpr auto kChoices<RopeScaling> = std::to_array<Choice<RopeScaling>>({
    {RopeScaling::kNone, "none"},
    {RopeScaling::kLlama3, "llama3"},
});

enum class NormPlacement { kPre, kPost };
template <>
inline constexpr auto kChoices<NormPlacement> = std::to_array<Choice<NormPlacement>>({
    {NormPlacement::kPre, "pre", "before each sublayer"},
    {NormPlacement::kPost, "post", "after it, as in the paper"},
});

enum class PositionEncoding { kSinusoidal, kRotary };
template <>
inline constexpr auto kChoices<PositionEncoding> = std::to_array<Choice<PositionEncoding>>({
    {PositionEncoding::kSinusoidal, "sinusoidal"},
    {PositionEncoding::kRotary, "rotary"},
});

/// Of the feed-forward layers of seq2seq; other families have their own.
enum class Activation { kRelu, kGelu };
template <>
inline constexpr auto kChoices<Activation> = std::to_array<Choice<Activation>>({
    {Activation::kRelu, "relu"},
    {Activation::kGelu, "gelu"},
});

/// The load-balancing loss of a mixture of experts.
enum class BalanceLoss { kMinimind, kSimple };
template <>
inline constexpr auto kChoices<BalanceLoss> = std::to_array<Choice<BalanceLoss>>({
    {BalanceLoss::kMinimind, "minimind", "E * sum(load * mean score)"},
    {BalanceLoss::kSimple, "simple", "sum((load - 1/E)^2)"},
});

/// Section "model": the family and its sizes. 0 stands for what resolve() works out.
struct ModelConfig {
  std::string preset, family = "llama";
  int64_t depth = 0;
  int64_t layers = 4, width = 128, heads = 4, kv_heads = 0, head_size = 0, ffn = 0, vocab_size = 0,
          context = 0;
  double norm_eps = 0, init_std = 0.02, dropout = 0, softcap = 0;
  bool tie_embeddings = true;
  std::string gradient_checkpointing = "none";
  // Rotary positions
  double rope_theta = 0;
  RopeScaling rope_scaling = RopeScaling::kNone;
  double rope_factor = 8, rope_low_freq = 1, rope_high_freq = 4;
  int64_t rope_original_context = 8192;
  // Sliding windows (nanochat)
  std::string window_pattern = "SSSL";
  // Encoder and decoder (seq2seq)
  int64_t encoder_layers = 0, source_vocab_size = 0;
  bool share_embeddings = true;
  NormPlacement norm_place = NormPlacement::kPre;
  PositionEncoding positions = PositionEncoding::kSinusoidal;
  Activation activation = Activation::kRelu;
  // Mixture of experts (qwen3_moe)
  int64_t experts = 4, experts_per_token = 1, expert_ffn = 0;
  bool norm_topk = true;
  double balance_coef = 5e-4;
  BalanceLoss balance = BalanceLoss::kMinimind;

  void describe(Fields& fields);
  /// Fills in what 0 stands for and checks that the sizes fit together. Rows will be `row_length` tokens long
  /// (0: unknown).
  void resolve(int64_t tokenizer_vocab, int64_t row_length);
  /// The same for a family that translates. With shared embeddings both vocabularies are one.
  void resolve_pair(int64_t source_vocab, int64_t target_vocab, int64_t row_length);

  // What the family decides (model/family.h).
  bool has_qkv_bias() const;
  bool has_qk_norm() const;
  bool has_experts() const;
  bool translates() const;
  /// Whether the sizes are for the program to choose (model.preset auto).
  bool leaves_sizes_open() const;
  /// Whether the number of blocks that are computed again is.
  bool leaves_checkpointing_open() const;
  /// How many blocks, from the first on, compute their activations again in the backward pass. 0 for "auto":
  /// a training works that out before it makes its model.
  int64_t recomputed_blocks() const;
  /// How many positions before its own a layer's query sees; 0: all.
  int64_t window(int64_t layer) const;
};

/// The models known by name (model.preset).
std::vector<Preset> model_presets();

}  // namespace tightloop
