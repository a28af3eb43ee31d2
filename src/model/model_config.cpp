#include "model/model_config.h"

#include <charconv>

#include "core/error.h"
#include "model/family.h"

namespace tightloop {

std::vector<Preset> model_presets() {
  std::vector<Preset> presets;
  for (const auto& family : families())
    presets.insert(presets.end(), family.presets.begin(), family.presets.end());
  return presets;
}

void ModelConfig::describe(Fields& fields) {
  auto presets = model_presets();
  presets.push_back({"auto", {}});
  fields
      .add("preset", preset,
           "A known model: sets the other sizes. auto: layers, width and heads by the size of the data and "
           "the device")
      .presets(presets);
  std::vector<std::string> names;
  for (const auto& known : families()) names.push_back(known.name);
  fields.add("family", family, "Architecture").choices(names);
  fields
      .add("depth", depth,
           "nanochat's one dial: layers, width (64 a layer, in heads of 128) and heads follow, and where a "
           "recipe "
           "or the command line sets it also batch, rates, weight decay and steps (docs/recipes.md); 0: off")
      .range(0, 1000);
  fields.add("layers", layers, "Transformer layers (seq2seq: of the decoder)").range(1, 1000);
  fields.add("width", width, "Hidden size: width of the residual stream").range(1, 1 << 20);
  fields.add("heads", heads, "Attention heads; width must be a multiple").range(1, 1 << 12);
  fields.add("kv_heads", kv_heads, "Key/value heads (grouped-query attention); 0: as many as heads")
      .range(0, 1 << 12);
  fields.add("head_size", head_size, "Dimension of a head; 0: width / heads").range(0, 1 << 12);
  fields
      .add("ffn", ffn,
           "Hidden size of the feed-forward layer; 0: the family's own (8/3 of the width, rounded up to 64; "
           "gpt2, nanochat and seq2seq: 4 times the width)")
      .range(0, 1 << 22);
  fields.add("vocab_size", vocab_size, "Rows of the embedding; 0: the tokenizer's size, rounded up to 64")
      .range(0, 1 << 24);
  fields
      .add("context", context,
           "Maximum sequence length: learned position embeddings have so many rows, and sliding windows are "
           "fractions of it; 0: data.seq_len")
      .range(0, 1 << 24);
  fields
      .add("norm_eps", norm_eps,
           "Epsilon of the norms; 0: the family's own (1e-6, gpt2 and seq2seq 1e-5, nanochat that of fp32)")
      .range(0, 1);
  fields
      .add("init_std", init_std,
           "Standard deviation of initial weights (residual projections: / sqrt(2 layers))")
      .range(0, 10);
  fields.add("dropout", dropout, "Dropout probability in training").range(0, 0.99);
  fields
      .add("gradient_checkpointing", gradient_checkpointing,
           "Blocks that keep only their input in training and are computed again in the backward pass, for "
           "less memory and more time: none (or false), all (or true), a number: the first so many, or auto: "
           "as few as fit into the device's memory")
      .on_off("all", "none")
      .alias("use_gradient_checkpointing");
  fields.add("softcap", softcap, "Logit soft-capping, cap * tanh(logits / cap); 0: off (nanochat: 15)")
      .range(0, 1e6);
  fields.add("tie_embeddings", tie_embeddings,
             "The output head uses the embedding's weight (nanochat: never)");
  fields.add("rope_theta", rope_theta, "RoPE base (theta); 0: the family's own (10000, nanochat 100000)")
      .range(0, 1e12);
  fields.add("rope_scaling", rope_scaling, "RoPE scaling");
  fields.add("rope_factor", rope_factor, "llama3 RoPE scaling: low frequencies are divided by this")
      .range(1, 1e6);
  fields
      .add("rope_low_freq", rope_low_freq,
           "llama3 RoPE scaling: wavelengths above rope_original_context / this are scaled")
      .range(0, 1e6);
  fields
      .add("rope_high_freq", rope_high_freq,
           "llama3 RoPE scaling: wavelengths below rope_original_context / this are not scaled")
      .range(0, 1e6);
  fields
      .add("rope_original_context", rope_original_context,
           "llama3 RoPE scaling: context length before scaling")
      .range(1, 1 << 24);
  fields.add("window_pattern", window_pattern,
             "nanochat: attention window of each layer, S (a quarter of the context) or L (all of it), "
             "repeated; the last is L");
  fields.add("encoder_layers", encoder_layers, "seq2seq: encoder layers; 0: as many as layers")
      .range(0, 1000);
  fields
      .add("source_vocab_size", source_vocab_size,
           "seq2seq: rows of the source's embedding; 0: the tokenizer's size, rounded up to 64")
      .range(0, 1 << 24);
  fields.add("share_embeddings", share_embeddings,
             "seq2seq: one embedding for source, target and output head; needs one tokenizer for both");
  fields.add("norm_place", norm_place, "seq2seq: where LayerNorm stands (pre-norm, post-norm)");
  fields.add("positions", positions, "seq2seq: position encoding");
  fields.add("activation", activation, "seq2seq: activation function of the feed-forward layers");
  fields.add("experts", experts, "qwen3_moe: experts a layer").range(1, 1 << 12);
  fields
      .add("experts_per_token", experts_per_token, "qwen3_moe: experts that each token is routed to (top-k)")
      .range(1, 1 << 12);
  fields.add("expert_ffn", expert_ffn, "qwen3_moe: hidden size of an expert; 0: as ffn").range(0, 1 << 22);
  fields.add("norm_topk", norm_topk, "qwen3_moe: normalize the weights of the chosen experts to sum to 1");
  fields.add("balance_coef", balance_coef, "qwen3_moe: coefficient of the load-balancing loss").range(0, 1e3);
  fields.add("balance", balance, "qwen3_moe: load-balancing loss");
}

void ModelConfig::resolve(int64_t tokenizer_vocab, int64_t row_length) {
  const auto round_up = [](int64_t value) { return (value + 63) / 64 * 64; };
  if (context == 0) context = row_length;
  if (vocab_size == 0) vocab_size = round_up(tokenizer_vocab);
  if (vocab_size < tokenizer_vocab) {
    throw usage_error("model.vocab_size ({}) is smaller than the tokenizer's vocabulary ({}).", vocab_size,
                      tokenizer_vocab);
  }
  const Family& own = family_of(*this);
  if (own.defaults) own.defaults(*this);
  if (!own.has.depth && depth != 0)
    throw usage_error("model.depth is nanochat's dial; set model.layers and model.width for {}.", family);

  if (norm_eps == 0) norm_eps = 1e-6;
  if (rope_theta == 0) rope_theta = 10000;
  if (kv_heads == 0) kv_heads = heads;
  if (head_size == 0) {
    if (width % heads)
      throw usage_error("model.width ({}) must be a multiple of model.heads ({}).", width, heads);
    head_size = width / heads;
  }
  if (ffn == 0) ffn = round_up(width * 8 / 3);
  if (expert_ffn == 0) expert_ffn = ffn;
  if (heads % kv_heads) {
    throw usage_error("model.heads ({}) must be a multiple of model.kv_heads ({}).", heads, kv_heads);
  }
  if (rope_scaling != RopeScaling::kNone && rope_low_freq >= rope_high_freq) {
    throw usage_error("model.rope_low_freq ({}) must be smaller than model.rope_high_freq ({}).",
                      rope_low_freq, rope_high_freq);
  }
  recomputed_blocks();  // refuses what it does not know
  if (own.check) own.check(*this);
}

void ModelConfig::resolve_pair(int64_t source_vocab, int64_t target_vocab, int64_t row_length) {
  if (share_embeddings && source_vocab != target_vocab)
    throw usage_error(
        "model.share_embeddings needs one tokenizer for both sides; they have {} and {} tokens. Set it to "
        "false, or train a joint tokenizer.",
        source_vocab, target_vocab);
  if (source_vocab_size == 0) source_vocab_size = (source_vocab + 63) / 64 * 64;
  if (source_vocab_size < source_vocab)
    throw usage_error("model.source_vocab_size ({}) is smaller than the tokenizer's vocabulary ({}).",
                      source_vocab_size, source_vocab);
  resolve(target_vocab, row_length);
}

bool ModelConfig::has_qkv_bias() const { return family_of(*this).has.qkv_bias; }
bool ModelConfig::has_qk_norm() const { return family_of(*this).has.qk_norm; }
bool ModelConfig::has_experts() const { return family_of(*this).has.experts; }
bool ModelConfig::translates() const { return family_of(*this).has.translates; }

bool ModelConfig::leaves_sizes_open() const { return preset == "auto"; }

bool ModelConfig::leaves_checkpointing_open() const { return gradient_checkpointing == "auto"; }

int64_t ModelConfig::recomputed_blocks() const {
  const auto& text = gradient_checkpointing;
  if (text == "none" || text == "false" || text == "auto") return 0;
  if (text == "all" || text == "true") return layers;
  int64_t blocks = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), blocks);
  if (failed != std::errc() || end != text.data() + text.size() || blocks < 0 || blocks > layers) {
    throw usage_error(
        "model.gradient_checkpointing is '{}'; it takes none, all, auto or a number of blocks, at most {}.",
        text, layers);
  }
  return blocks;
}

int64_t ModelConfig::window(int64_t layer) const {
  const auto own = family_of(*this).window;
  return own ? own(*this, layer) : 0;
}

}  // namespace tightloop
