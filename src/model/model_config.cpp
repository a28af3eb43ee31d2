#include "model/model_config.h"

#include <charconv>
#include <limits>

#include "core/error.h"

namespace tightloop {

const std::vector<Preset>& model_presets() {
  static const std::vector<Preset> presets{
      {"gpt2-124m",
       {{"family", "gpt2"},
        {"layers", "12"},
        {"width", "768"},
        {"heads", "12"},
        {"vocab_size", "50304"},
        {"context", "1024"},
        {"norm_eps", "1e-5"}}},
      {"llama3.2-1b",
       {{"family", "llama"},
        {"layers", "16"},
        {"width", "2048"},
        {"heads", "32"},
        {"kv_heads", "8"},
        {"head_size", "64"},
        {"ffn", "8192"},
        {"vocab_size", "128256"},
        {"norm_eps", "1e-5"},
        {"rope_theta", "500000"},
        {"rope_scaling", "llama3"},
        {"rope_factor", "32"}}},
      {"qwen2.5-0.5b",
       {{"family", "qwen2"},
        {"layers", "24"},
        {"width", "896"},
        {"heads", "14"},
        {"kv_heads", "2"},
        {"ffn", "4864"},
        {"vocab_size", "151936"},
        {"rope_theta", "1e6"}}},
      {"qwen3-0.6b",
       {{"family", "qwen3"},
        {"layers", "28"},
        {"width", "1024"},
        {"heads", "16"},
        {"kv_heads", "8"},
        {"head_size", "128"},
        {"ffn", "3072"},
        {"vocab_size", "151936"},
        {"rope_theta", "1e6"}}},
      {"minimind-64m",
       {{"family", "qwen3"},
        {"layers", "8"},
        {"width", "768"},
        {"heads", "8"},
        {"kv_heads", "4"},
        {"ffn", "2432"},
        {"vocab_size", "6400"},
        {"rope_theta", "1e6"}}},
      {"minimind-moe-198m",
       {{"family", "qwen3_moe"},
        {"layers", "8"},
        {"width", "768"},
        {"heads", "8"},
        {"kv_heads", "4"},
        {"expert_ffn", "2432"},
        {"vocab_size", "6400"},
        {"rope_theta", "1e6"},
        {"experts", "4"},
        {"experts_per_token", "1"}}},
      {"nanochat-d4", {{"family", "nanochat"}, {"depth", "4"}}},
      {"nanochat-d12", {{"family", "nanochat"}, {"depth", "12"}}},
      {"nanochat-d20", {{"family", "nanochat"}, {"depth", "20"}}},
      {"translate-tiny",
       {{"family", "seq2seq"},
        {"layers", "3"},
        {"width", "256"},
        {"heads", "4"},
        {"ffn", "1024"},
        {"dropout", "0.1"}}},
      {"translate-base",
       {{"family", "seq2seq"},
        {"layers", "6"},
        {"width", "512"},
        {"heads", "8"},
        {"ffn", "2048"},
        {"dropout", "0.1"}}},
  };
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
  fields.add("family", family, "Architecture")
      .choices({"gpt2", "llama", "qwen2", "qwen3", "qwen3_moe", "nanochat", "seq2seq"});
  fields
      .add("depth", depth,
           "nanochat's one dial: layers, width (64 a layer, in heads of 128) and heads follow; 0: off")
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
  fields.add("rope_scaling", rope_scaling, "RoPE scaling").choices({"none", "llama3"});
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
  fields
      .add("norm_place", norm_place,
           "seq2seq: LayerNorm before each sublayer (pre-norm), or after it as in the paper (post-norm)")
      .choices({"pre", "post"});
  fields.add("positions", positions, "seq2seq: position encoding").choices({"sinusoidal", "rotary"});
  fields.add("activation", activation, "seq2seq: activation function of the feed-forward layers")
      .choices({"relu", "gelu"});
  fields.add("experts", experts, "qwen3_moe: experts a layer").range(1, 1 << 12);
  fields
      .add("experts_per_token", experts_per_token, "qwen3_moe: experts that each token is routed to (top-k)")
      .range(1, 1 << 12);
  fields.add("expert_ffn", expert_ffn, "qwen3_moe: hidden size of an expert; 0: as ffn").range(0, 1 << 22);
  fields.add("norm_topk", norm_topk, "qwen3_moe: normalize the weights of the chosen experts to sum to 1");
  fields.add("balance_coef", balance_coef, "qwen3_moe: coefficient of the load-balancing loss").range(0, 1e3);
  fields
      .add("balance", balance,
           "qwen3_moe: load-balancing loss, E * sum(load * mean score) or sum((load - 1/E)^2)")
      .choices({"minimind", "simple"});
}

void ModelConfig::resolve(int64_t tokenizer_vocab, int64_t row_length) {
  const auto round_up = [](int64_t value) { return (value + 63) / 64 * 64; };
  if (context == 0) context = row_length;
  if (vocab_size == 0) vocab_size = round_up(tokenizer_vocab);
  if (vocab_size < tokenizer_vocab) {
    throw usage_error("model.vocab_size ({}) is smaller than the tokenizer's vocabulary ({}).", vocab_size,
                      tokenizer_vocab);
  }
  if (family == "gpt2") resolve_gpt2();
  if (family == "nanochat") resolve_nanochat();
  if (translates()) resolve_seq2seq();
  if (family != "nanochat" && depth != 0)
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
  const bool rotary = family != "gpt2" && !(translates() && positions != "rotary");
  if (rotary && head_size % 2) {
    throw usage_error("model.head_size is {}; rotary positions need an even head size.", head_size);
  }
  if (rope_scaling != "none" && rope_low_freq >= rope_high_freq) {
    throw usage_error("model.rope_low_freq ({}) must be smaller than model.rope_high_freq ({}).",
                      rope_low_freq, rope_high_freq);
  }
  if (has_experts() && experts_per_token > experts) {
    throw usage_error("model.experts_per_token ({}) is larger than model.experts ({}).", experts_per_token,
                      experts);
  }
  if (recomputed_blocks() > 0 && translates())
    throw usage_error("seq2seq keeps all activations: leave out model.gradient_checkpointing.");
}

void ModelConfig::resolve_gpt2() {
  if (context == 0)
    throw usage_error("gpt2 learns its positions: set model.context to the longest sequence it shall see.");
  if ((kv_heads != 0 && kv_heads != heads) || (head_size != 0 && head_size * heads != width))
    throw usage_error(
        "gpt2 has heads of width / heads, as many for keys and values: leave out model.kv_heads and "
        "model.head_size.");
  if (rope_scaling != "none")
    throw usage_error("gpt2 has no rotary positions: leave out model.rope_scaling.");
  if (norm_eps == 0) norm_eps = 1e-5;
  if (ffn == 0) ffn = 4 * width;
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

void ModelConfig::resolve_seq2seq() {
  if ((kv_heads != 0 && kv_heads != heads) || (head_size != 0 && head_size * heads != width))
    throw usage_error(
        "seq2seq has heads of width / heads, as many for keys and values: leave out model.kv_heads and "
        "model.head_size.");
  if (share_embeddings) source_vocab_size = vocab_size;
  if (source_vocab_size == 0)
    throw usage_error("seq2seq without shared embeddings needs model.source_vocab_size.");
  if (encoder_layers == 0) encoder_layers = layers;
  if (norm_eps == 0) norm_eps = 1e-5;
  if (ffn == 0) ffn = 4 * width;
}

void ModelConfig::resolve_nanochat() {
  constexpr int64_t kHead = 128, kWidthPerLayer = 64;
  if (depth > 0) {
    layers = depth;
    width = (depth * kWidthPerLayer + kHead - 1) / kHead * kHead;
    heads = width / kHead;
    head_size = kHead;
  }
  if (width < kSmearChannels)
    throw usage_error("model.width is {}; nanochat's gates read {} of it.", width, kSmearChannels);
  if (context == 0) throw usage_error("nanochat's windows are parts of the context: set model.context.");
  if (window_pattern.empty() || window_pattern.find_first_not_of("SL") != std::string::npos)
    throw usage_error("model.window_pattern is '{}'; it takes the letters S and L.", window_pattern);
  if (rope_scaling != "none")
    throw usage_error("nanochat does not stretch its positions: leave out model.rope_scaling.");
  if (dropout != 0) throw usage_error("nanochat has no dropout: leave out model.dropout.");
  tie_embeddings = false;
  if (softcap == 0) softcap = 15;
  if (rope_theta == 0) rope_theta = 100000;
  if (norm_eps == 0) norm_eps = std::numeric_limits<float>::epsilon();
  if (ffn == 0) ffn = 4 * width;
}

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
  if (family != "nanochat") return 0;
  const bool last = layer == layers - 1;
  if (last || window_pattern[layer % window_pattern.size()] == 'L') return context;
  return (context + 4 * 128 - 1) / (4 * 128) * 128;  // a quarter, rounded up to 128s
}

}  // namespace tightloop
